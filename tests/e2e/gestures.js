// Random gestures against the rule of the split editor; runs inside the browser.
// Answers with the first few that broke a promise, and how many steps moved anything.
async (count) => {
  const rule = await import("/static/js/redistribute.js");
  let state = 42;
  const below = (n) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
  const total = (weights) => weights.reduce((a, b) => a + b, 0);
  const split = (n) => {
    if (below(5) === 0) return Array.from({ length: n }, (_, i) => (i === 0 ? 10000 : 0));
    const cuts = Array.from({ length: n - 1 }, () => below(10001)).sort((a, b) => a - b);
    return [...cuts, 10000].map((cut, i) => cut - (cuts[i - 1] ?? 0));
  };
  const bad = [];
  let moved = 0;
  for (let round = 0; round < count; round += 1) {
    const start = split(1 + below(6));
    const locked = start.map(() => below(4) === 0);
    const caps = start.map((bp) => (below(4) === 0 ? bp : 10000));
    const row = below(start.length);
    const before = String(start);
    const { least, most } = rule.bounds(start, row, locked, caps);
    for (let step = 0; step < 4; step += 1) {
      const value = below(12001) - 1000;
      const next = rule.redistribute(start, row, value, locked, caps);
      const wanted = Math.min(most, Math.max(least, value));
      const fits = next.every((bp, i) => Number.isInteger(bp) && bp >= 0
        && bp <= Math.max(caps[i], start[i])
        && (i === row || !locked[i] || bp === start[i]));
      if (total(next) !== 10000 || next[row] !== wanted || !fits) {
        bad.push({ start, row, value, locked, caps, next });
      }
      moved += next[row] !== start[row] ? 1 : 0;
    }
    const back = rule.redistribute(start, row, start[row], locked, caps);
    if (String(back) !== before || String(start) !== before) {
      bad.push({ start, row, locked, caps, back });
    }
    const equal = rule.even(start, locked, caps);
    if (total(equal) !== 10000 || equal.some((bp, i) => locked[i] && bp !== start[i])) {
      bad.push({ start, locked, caps, equal });
    }
  }
  return { bad: bad.slice(0, 5), moved };
}
