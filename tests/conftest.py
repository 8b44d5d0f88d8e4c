"""How tests are spread over processes (`-n 2 --dist loadscope --no-loadscope-reorder`): file by file, Ray's all in one.

Ray's tests share a cluster and mostly wait, so they come first and in one process, beside everything else.
"""

from pathlib import Path

import pytest

RAY = "tests/ray/"


def pytest_collection_modifyitems(items):
    ray = Path(__file__).parent / "ray"
    items.sort(key=lambda item: ray not in item.path.parents)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return RAY if nodeid.startswith(RAY) else nodeid.partition("::")[0]

    return ByFile(config, log)
