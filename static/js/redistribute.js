// How the other shares follow when one is moved. Pure: integers in basis points,
// no document, no clock.
//
// Everything is computed from the weights at the start of the gesture, never from
// the step before: so dragging out and back restores what was.

export const TOTAL = 10000;

// Rows that give or take while `row` moves: not locked, not the row itself.
function followers(start, row, locked) {
  return start.map((_, index) => index).filter((index) => index !== row && !locked[index]);
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

// The least and the most that `row` may get. `caps[i]` is the most that row i may
// ever have; a row that already has more keeps it.
export function bounds(start, row, locked, caps) {
  const free = followers(start, row, locked);
  const fixed = sum(start.filter((_, index) => index !== row && !free.includes(index)));
  const room = sum(free.map((index) => Math.max(caps[index], start[index])));
  const most = Math.min(TOTAL - fixed, Math.max(caps[row], start[row]));
  const least = Math.max(0, TOTAL - fixed - room);
  return { least: Math.min(least, most), most };
}

// `amount` split in proportion to `shares` by largest remainder; ties go to the
// earlier row. All shares 0: the first row takes everything.
function apportion(amount, shares) {
  const whole = sum(shares);
  if (whole === 0) return shares.map((_, index) => (index === 0 ? amount : 0));
  const parts = shares.map((share) => Math.floor((amount * share) / whole));
  const remainders = shares.map((share, index) => ({ index, rest: (amount * share) % whole }));
  remainders.sort((a, b) => b.rest - a.rest || a.index - b.index);
  const missing = amount - sum(parts);
  for (const { index } of remainders.slice(0, missing)) parts[index] += 1;
  return parts;
}

// The weights after `row` was moved to `value`; always a new array that sums to TOTAL
// when `start` did. A value out of bounds counts as the nearest one within.
export function redistribute(start, row, value, locked, caps) {
  const { least, most } = bounds(start, row, locked, caps);
  const next = [...start];
  next[row] = Math.min(most, Math.max(least, Math.round(value)));
  let open = followers(start, row, locked);
  if (open.length === 0) return [...start];
  let rest = sum(open.map((index) => start[index])) + start[row] - next[row];
  // Rows that reach their cap leave the round; what they cannot take goes to the others.
  while (open.length > 0) {
    const parts = apportion(rest, open.map((index) => start[index]));
    const full = open.filter((index, at) => parts[at] > Math.max(caps[index], start[index]));
    if (full.length === 0) {
      open.forEach((index, at) => { next[index] = parts[at]; });
      break;
    }
    for (const index of full) {
      next[index] = Math.max(caps[index], start[index]);
      rest -= next[index];
    }
    open = open.filter((index) => !full.includes(index));
  }
  return next;
}

// Equal shares for every row that may take one; ties go to the earlier row.
export function even(start, locked, caps) {
  const free = start.map((_, index) => index).filter((index) => !locked[index] && caps[index] >= TOTAL);
  if (free.length === 0) return [...start];
  const amount = sum(free.map((index) => start[index]));
  const parts = apportion(amount, free.map(() => 1));
  const next = [...start];
  free.forEach((index, at) => { next[index] = parts[at]; });
  return next;
}
