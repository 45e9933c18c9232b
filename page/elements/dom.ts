/**
 * Makes elements. A text from outside (a pod's name, an event) only ever becomes a text node or the value of an
 * attribute that runs nothing, without control characters.
 */
import { printable, withoutControls } from "./format.ts";

export type Child = Node | string;
type Value = string | number | boolean;
export type Attributes = Readonly<Record<string, Value>>;

/** @param attributes true: without a value; false: missing */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children.map(printableChild));
  return element;
}

const printableChild = (child: Child): Child => (typeof child === "string" ? printable(child) : child);

const SVG = "http://www.w3.org/2000/svg";

export function makeSvg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  setAttributes(element, attributes);
  element.append(...children.map(printableChild));
  return element;
}

export function setAttributes(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    const text = value === true ? "" : value === false ? null : withoutControls(String(value));
    if (text === null) element.removeAttribute(name);
    else if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

/** Leaves what is the same alone, so that a selection and a screen reader's place stay. */
export function setText(element: Element, text: string): void {
  const shown = printable(text);
  if (element.textContent !== shown) element.textContent = shown;
}

interface KeyedChild<T> {
  readonly element: Element;
  update(item: T): void;
}

/** One element for each key, in the order of `items`; elements of keys that stay are kept. */
export class KeyedChildren<T> {
  readonly #parent: Element;
  readonly #make: (item: T) => KeyedChild<T>;
  #known = new Map<string, KeyedChild<T>>();

  constructor(parent: Element, make: (item: T) => KeyedChild<T>) {
    this.#parent = parent;
    this.#make = make;
  }

  show(items: readonly T[], keyOf: (item: T) => string): void {
    const next = new Map<string, KeyedChild<T>>();
    let at = this.#parent.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      const child = this.#known.get(key) ?? this.#make(item);
      child.update(item);
      next.set(key, child);
      if (child.element === at) at = at.nextElementSibling;
      else this.#parent.insertBefore(child.element, at);
    }
    for (const [key, { element }] of this.#known) if (!next.has(key)) element.remove();
    this.#known = next;
  }
}
