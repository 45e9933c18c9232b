/** Orders versions as Debian does (deb-version(7)): digits as numbers, `~` before everything, even the end. Pure. */

/** Bounds the work for a version that a registry sends. */
export const MAX_VERSION_LENGTH = 128;

/** @returns below 0 when `one` is older */
export function compareVersions(one: string, other: string): number {
  const [left, right] = [split(one), split(other)];
  const epochs = left.epoch - right.epoch;
  if (epochs !== 0) return epochs;
  return compareParts(left.upstream, right.upstream) || compareParts(left.revision, right.revision);
}

interface Version {
  readonly epoch: number;
  readonly upstream: string;
  readonly revision: string;
}

function split(text: string): Version {
  const bounded = text.slice(0, MAX_VERSION_LENGTH);
  const [, epoch, rest = ""] = /^(?:(\d+):)?(.*)$/s.exec(bounded) ?? [];
  const dash = rest.lastIndexOf("-");
  const [upstream, revision] = dash < 0 ? [rest, ""] : [rest.slice(0, dash), rest.slice(dash + 1)];
  return { epoch: Number(epoch ?? 0), upstream, revision };
}

/** Parts without digits and numbers take turns. */
function compareParts(one: string, other: string): number {
  let [left, right] = [one, other];
  while (left !== "" || right !== "") {
    const [texts, numbers] = [/^\D*/, /^\d*/];
    const [leftText, rightText] = [match(texts, left), match(texts, right)];
    const byText = compareTexts(leftText, rightText);
    if (byText !== 0) return byText;
    [left, right] = [left.slice(leftText.length), right.slice(rightText.length)];
    const [leftNumber, rightNumber] = [match(numbers, left), match(numbers, right)];
    const [bare, otherBare] = [leftNumber.replace(/^0+/, ""), rightNumber.replace(/^0+/, "")];
    const byNumber = bare.length - otherBare.length || (bare < otherBare ? -1 : bare > otherBare ? 1 : 0);
    if (byNumber !== 0) return byNumber;
    [left, right] = [left.slice(leftNumber.length), right.slice(rightNumber.length)];
  }
  return 0;
}

const match = (pattern: RegExp, text: string): string => pattern.exec(text)?.[0] ?? "";

function compareTexts(one: string, other: string): number {
  for (let index = 0; index < Math.max(one.length, other.length); index += 1) {
    const difference = orderOf(one[index]) - orderOf(other[index]);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** `~`, the end, letters, all others. */
function orderOf(character: string | undefined): number {
  if (character === "~") return -1;
  if (character === undefined) return 0;
  const code = character.codePointAt(0) ?? 0;
  return /[A-Za-z]/.test(character) ? code : code + 0x11_0000;
}
