"""The process of the server: `python serve.py MODEL WINDOW ADDRESS_FILE`, ended by the end of its stdin."""

from __future__ import annotations

import sys
from pathlib import Path

import xllamacpp

THREADS = 2


def main(model: str, window: int, address: Path) -> None:
    """Serve `model` with `window` tokens on a free loopback port, and write its URL to `address`."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = window
    params.n_parallel = 1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads, cpu.poll = THREADS, 0
    params.warmup = params.ui = params.fit_params = False
    params.offline = True
    params.cache_ram_mib = 0
    server = xllamacpp.Server(params)
    partial = address.with_suffix(".partial")
    partial.write_text(server.listening_address)
    partial.rename(address)
    # The other end closes when the tests end, however they end: nothing is left running.
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
