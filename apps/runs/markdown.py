"""Markdown that a step wrote, as HTML that can do no harm. The one place where HTML is trusted."""

from __future__ import annotations

import nh3
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_TAGS = nh3.ALLOWED_TAGS - {"img", "map", "area"}


def harmless(text: str) -> SafeString:
    """Markdown as harmless HTML: no raw HTML, no pictures, links only to the web and without our address."""
    html = nh3.clean(
        _MARKDOWN.render(text),
        tags=_TAGS,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return SafeString(html)
