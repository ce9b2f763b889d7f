"""A task given by examples.  `longreach show examples.my_example.Sort --length 4` draws one of them."""

import longreach as lr


class Sort(lr.Example):
    """c a b =  ->  a b c ."""

    alphabet = "abcdefghijklmnopqrstuvwxyz"  # optional: otherwise collected from samples

    def example(self, rng, length):
        prompt = rng.sample(self.alphabet, length)  # at most 26 letters
        return prompt, sorted(prompt), self.ids(prompt)

    def answer(self, prompt):
        return sorted(prompt)

    def ids(self, prompt):
        order = sorted(range(len(prompt)), key=prompt.__getitem__)
        return [n + 1 for n in range(len(prompt))], [n + 1 for n in order]
