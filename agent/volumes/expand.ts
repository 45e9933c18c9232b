/** Gives a variable's value; `undefined`: there is no such variable. */
export type Lookup = (name: string) => string | undefined;

/**
 * `$(NAME)` becomes the variable's value, `$$` one dollar sign; a reference to what does not exist, an open one and
 * every other dollar sign stay as they are (Kubernetes' third_party/forked/golang/expansion). Values are not expanded
 * again.
 */
export function expandReferences(text: string, lookup: Lookup): string {
  let result = "";
  let from = 0;
  for (let dollar = text.indexOf("$"); dollar >= 0; dollar = text.indexOf("$", from)) {
    result += text.slice(from, dollar);
    const next = text[dollar + 1];
    const close = next === "(" ? text.indexOf(")", dollar + 2) : -1;
    if (next === "$") {
      result += "$";
      from = dollar + 2;
    } else if (close < 0) {
      result += "$";
      from = dollar + 1;
    } else {
      const reference = text.slice(dollar, close + 1);
      result += lookup(reference.slice(2, -1)) ?? reference;
      from = close + 1;
    }
  }
  return result + text.slice(from);
}
