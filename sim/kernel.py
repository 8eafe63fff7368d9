from typing import Any
def compare(document: dict[str, Any]) -> tuple[int | None, list[str]]:
    if document["kernel"] is None:
        return None, []
    return sum(r + s for _, _, _, r, s in document["kernel"]), []
