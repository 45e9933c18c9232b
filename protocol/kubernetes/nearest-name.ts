/** Farther than this a name is another word, not a slip of the finger. */
const MAX_DISTANCE = 3;
/** Names of fields and flags are shorter; a longer one is not compared. */
const MAX_LENGTH = 64;

/** The one of `candidates` that `name` was probably meant to be, upper and lower case aside. */
export function nearestName(name: string, candidates: readonly string[]): string | undefined {
  if (name.length > MAX_LENGTH) return undefined;
  // In a short name most letters must be right.
  const allowed = Math.min(MAX_DISTANCE, Math.floor(name.length / 3));
  let best: string | undefined;
  let bestDistance = allowed + 1;
  for (const candidate of candidates) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Insertions, deletions, replacements and swaps of neighbours that make `right` of `left`. */
export function editDistance(left: string, right: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let row = 1; row <= left.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= right.length; column += 1) {
      const replaced = (previous[column - 1] ?? 0) + (left[row - 1] === right[column - 1] ? 0 : 1);
      let best = Math.min(replaced, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1);
      const isSwap = row > 1 && left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      if (isSwap && column > 1) best = Math.min(best, (before[column - 2] ?? 0) + 1);
      current.push(best);
    }
    before = previous;
    previous = current;
  }
  return previous[right.length] ?? 0;
}
