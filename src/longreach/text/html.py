"""Pages of HTML as plain text: paragraphs with a blank line between, no navigation."""

from html.parser import HTMLParser

_VOID = {"br", "hr", "img", "input", "link", "meta", "col", "area", "base", "wbr"}
_UNSEEN = {"head", "script", "style", "nav"}
_INLINE = {"a", "b", "i", "em", "strong", "u", "sub", "sup", "span", "font", "cite", "q", "small", "big", "tt", "code"}


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs = [""]
        self.linked = 0
        """Letters inside links."""
        self._open: list[tuple[str, bool]] = []
        """Elements that are open, and whether a reader sees what is in them."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _INLINE:
            self.paragraphs.append("")
        if tag not in _VOID:
            seen = self._seen and tag not in _UNSEEN and "navigation" not in (dict(attrs).get("class") or "")
            self._open.append((tag, seen))

    def handle_endtag(self, tag: str) -> None:
        if tag not in _INLINE:
            self.paragraphs.append("")
        # closes what was left open inside; a tag that nothing opened closes nothing
        for index in reversed(range(len(self._open))):
            if self._open[index][0] == tag:
                del self._open[index:]
                break

    def handle_data(self, data: str) -> None:
        if self._seen:
            self.paragraphs[-1] += data
            self.linked += len(data) if any(tag == "a" for tag, _ in self._open) else 0

    @property
    def _seen(self) -> bool:
        return self._open[-1][1] if self._open else True


def html_to_text(page: str) -> str:
    """The text that a reader sees, or nothing where most of it is links: such a page is a table of contents."""
    parser = _Text()
    parser.feed(page)
    parser.close()
    paragraphs = [" ".join(paragraph.split()) for paragraph in parser.paragraphs]
    text = "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
    return "" if 2 * parser.linked > len(text) else text
