"""What several files of tests begin with: sockets with a gate, and the folder of a small run."""

from __future__ import annotations

import pytest
import zmq
from support_tamper import copy_of, small_folder

from actors.transport import Gate


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def gate(context):
    gate = Gate(context)
    yield gate
    gate.close()


@pytest.fixture(params=["tcp", "ipc"])
def endpoint(request, tmp_path):
    return "tcp://127.0.0.1:*" if request.param == "tcp" else f"ipc://{tmp_path}/s"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Only to be read."""
    return small_folder(tmp_path_factory.mktemp("base") / "run")


@pytest.fixture
def folder(base, tmp_path):
    """To be tampered with."""
    return copy_of(base, tmp_path)
