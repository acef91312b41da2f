"""What a person sees while a page comes up: when it first showed, what then moved."""

from __future__ import annotations

from typing import Any, NamedTuple

from playwright.sync_api import Page

# Slow enough that the page is painted before its scripts have run.
CPU_SLOWER = 4
_WATCH = """
window.moves = [];
const text = (node) => node?.nodeType === 1
  ? [node.tagName, node.id, node.getAttribute("class")].filter(Boolean).join(" ")
  : String(node?.textContent ?? "gone").trim().slice(0, 40);
const place = ({ x, y, width, height }) => [x, y, width, height].map(Math.round);
const told = ({ node, previousRect, currentRect }) =>
  `${text(node)}: ${place(previousRect)} to ${place(currentRect)}`;
new PerformanceObserver((list) => {
  for (const { hadRecentInput, value, sources } of list.getEntries()) {
    if (!hadRecentInput) window.moves.push([value, sources.map(told)]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""
# Live parts have been heard of, charts are drawn.
_AT_REST = """() => {
  const busy = "[aria-busy=true], .htmx-request, [data-analysis]:not([data-done])";
  const pills = [...document.querySelectorAll("[data-freshness-text]")];
  return !document.querySelector(busy) && !pills.some((e) => /\\d/.test(e.textContent));
}"""
# What the last answer moved has been drawn and told two frames later.
_TOLD = """() => new Promise((done) => {
  const tell = () => done({
    first: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN,
    moves: window.moves,
  });
  requestAnimationFrame(() => requestAnimationFrame(tell));
})"""


class Painted(NamedTuple):
    """``first_ms`` after the address was asked for; ``shift`` as in cumulative layout
    shift, ``moved`` names what did."""

    first_ms: float
    shift: float
    moved: list[str]


def paints_watch(page: Page, *, slower: int = CPU_SLOWER) -> None:
    """Measure every page that this one opens from now on."""
    page.add_init_script(_WATCH)
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": slower})


def painted(page: Page) -> Painted:
    """Of the page that is open, when it has come to rest."""
    page.wait_for_load_state("load")
    page.wait_for_function(_AT_REST)
    found: dict[str, Any] = page.evaluate(_TOLD)
    moved = [name for _value, names in found["moves"] for name in names]
    return Painted(found["first"], sum(m[0] for m in found["moves"]), moved)
