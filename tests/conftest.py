"""How tests are spread over processes (`-n 2 --dist loadgroup --no-loadscope-reorder`): file by file, Ray's all in one.

Ray's tests share a cluster and mostly wait, so they come first and in one process, beside everything else.
"""

from pathlib import Path

import pytest

RAY = Path(__file__).parent / "ray"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: RAY not in item.path.parents)
    for item in items:
        group = "ray" if RAY in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
