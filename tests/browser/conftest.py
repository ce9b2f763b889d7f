"""Pages in a real browser: Chromium, driven by Playwright, without a network."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HOW_TO_GET_ONE = (
    "no browser: install Chromium (Debian: apt-get install chromium) and `pip install playwright`, "
    "or name the program in CHROMIUM"
)
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def _program() -> str | None:
    names = [os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    program = _program()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        # on a machine that calls itself CI, a missing browser is a failure
        (pytest.fail if os.environ.get("CI") else pytest.skip)(HOW_TO_GET_ONE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        yield browser
        browser.close()


class Visit:
    """A page with all that went wrong on it."""

    def __init__(self, page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def foreign_requests(self) -> list[str]:
        """Return the addresses asked for that are not part of the file or of this machine."""
        own = ("file:", "data:", "blob:", "http://127.0.0.1:", "http://localhost:")
        return [url for url in self.requests if not url.startswith(own)]


@pytest.fixture
def visit(browser) -> Iterator[Callable[..., Visit]]:
    """Open a file or an address; at the end no console message, error or foreign request may be left."""
    visits, contexts = [], []

    def open_page(target: Path | str, dark: bool = False, width: int = 1280, height: int = 900) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        made = Visit(context.new_page())
        visits.append(made)
        made.page.goto(target.resolve().as_uri() if isinstance(target, Path) else target)
        return made

    yield open_page
    for made in visits:
        assert made.complaints == []
        assert made.foreign_requests() == []
    for context in contexts:
        context.close()
