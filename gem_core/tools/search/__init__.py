"""The search tool: a local corpus, a retrieval server, or a search engine of the web."""

from __future__ import annotations

from gem_core.tools.search.documents import Document, SearchError
from gem_core.tools.search.tool import SearchTool

__all__ = ["Document", "SearchError", "SearchTool"]
