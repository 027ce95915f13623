"""`python -m benchmarks [NAME …]`: run the benches; a ratio beyond its bar fails."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys

from benchmarks.measure import Ratio

NAMES = ("gated_call", "script_call", "one_script", "many_scripts", "by_reference")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}")
    names: list[str] = parser.parse_args().names or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        parser.error(f"no bench named {unknown[0]!r}; there are {', '.join(NAMES)}")
    ratios: list[Ratio] = []
    for name in names:
        print(name)
        ratios += asyncio.run(importlib.import_module(f"benchmarks.{name}").run())
    print()
    for ratio in ratios:
        bar = f"≤ {ratio.most:g}" if ratio.most is not None else f"≥ {ratio.least:g}"
        verdict = "ok" if ratio.holds else "BEYOND ITS BAR"
        print(f"{ratio.name:40} {ratio.value:8.2f}{ratio.unit:3} {bar:8} {verdict}")
    return 0 if all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
