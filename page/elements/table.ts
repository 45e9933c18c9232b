import { make } from "./dom.ts";

/** It scrolls by itself where the screen is narrow, so that the page does not. */
export function table(caption: string, columns: readonly string[], body: HTMLElement): HTMLElement {
  const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)));
  const content = make("table", {}, make("caption", { class: "hidden" }, caption), make("thead", {}, head), body);
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption }, content);
}
