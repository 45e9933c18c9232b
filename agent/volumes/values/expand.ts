/** Gives a variable's value; `undefined`: there is no such variable. */
export type Lookup = (name: string) => string | undefined;

/**
 * `$(NAME)` becomes the variable's value, `$$` one dollar sign; a reference to what does not exist, an open one and
 * every other dollar sign stay as they are. Values are not expanded again.
 */
export function expandReferences(text: string, lookup: Lookup): string {
  let result = "";
  let from = 0;
  // The first one from here on; searched once for each, or a long text of open references would take for ever.
  let close = text.indexOf(")");
  for (let dollar = text.indexOf("$"); dollar >= 0; dollar = text.indexOf("$", from)) {
    result += text.slice(from, dollar);
    const next = text[dollar + 1];
    if (next === "(" && close >= 0 && close < dollar) close = text.indexOf(")", dollar + 2);
    if (next === "$") {
      result += "$";
      from = dollar + 2;
    } else if (next !== "(" || close < 0) {
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
