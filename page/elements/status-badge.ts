/** A word with a colour and a sign: the colour alone says nothing to some. */
import { make, setAttributes, setText } from "./dom.ts";

export type Level = "good" | "warning" | "bad" | "idle";

const SIGNS: Readonly<Record<Level, string>> = { good: "✓", warning: "!", bad: "✕", idle: "○" };

export function badge(level: Level = "idle", text = ""): HTMLElement {
  const element = make(
    "span",
    { class: "badge" },
    make("span", { "aria-hidden": "true", class: "sign" }),
    make("span"),
  );
  setBadge(element, level, text);
  return element;
}

export function setBadge(element: HTMLElement, level: Level, text: string): void {
  setAttributes(element, { class: `badge ${level}` });
  const [sign, word] = element.children;
  if (sign !== undefined) setText(sign, SIGNS[level]);
  if (word !== undefined) setText(word, text);
}
