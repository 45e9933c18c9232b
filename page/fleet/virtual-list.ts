/** A list of any length that has elements for the rows that are seen alone. One row is in the order of the Tab key. */
import { make, setAttributes } from "../elements/dom.ts";

export interface VirtualRow<T> {
  /** A link. */
  readonly element: HTMLAnchorElement;
  update(item: T): void;
}

/** Rows above and below what is seen. */
const MARGIN_ROWS = 6;

export class VirtualList<T> {
  readonly element: HTMLElement;
  readonly #list = make("ul");
  readonly #makeRow: () => VirtualRow<T>;
  /** By index modulo their number: a row that leaves is used for one that comes. */
  readonly #rows: { readonly item: HTMLLIElement; readonly row: VirtualRow<T>; at: number }[] = [];
  #items: readonly T[] = [];
  #focused = 0;
  #rowHeight = 0;

  constructor(label: string, makeRow: () => VirtualRow<T>) {
    this.#makeRow = makeRow;
    setAttributes(this.#list, { "aria-label": label });
    this.element = make("div", { class: "virtual" }, this.#list);
    this.element.addEventListener("scroll", () => this.#draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("focusin", (event) => {
      const found = this.#rows.find(({ item }) => item.contains(event.target as Node));
      if (found !== undefined) this.#focus(found.at, false);
    });
    new ResizeObserver(() => this.#measure()).observe(this.element);
  }

  /** @param isOther true for the rows of another question: they are shown from the first on */
  show(items: readonly T[], isOther: boolean): void {
    this.#items = items;
    if (isOther) {
      this.#focused = 0;
      this.element.scrollTop = 0;
    }
    this.#focused = Math.min(this.#focused, Math.max(0, items.length - 1));
    this.#measure();
  }

  #measure(): void {
    if (this.#rows.length === 0 && this.#items.length > 0) this.#addRow();
    this.#rowHeight = this.#rows[0]?.item.offsetHeight ?? 0;
    if (this.#rowHeight === 0) return;
    this.#list.style.height = `${this.#rowHeight * this.#items.length}px`;
    const wanted = Math.min(
      this.#items.length,
      Math.ceil(this.element.clientHeight / this.#rowHeight) + 2 * MARGIN_ROWS,
    );
    while (this.#rows.length < wanted) this.#addRow();
    this.#draw();
  }

  #addRow(): void {
    const row = this.#makeRow();
    const item = make("li", {}, row.element);
    this.#rows.push({ item, row, at: -1 });
    this.#list.append(item);
  }

  #draw(): void {
    const count = this.#rows.length;
    const top = Math.floor(this.element.scrollTop / (this.#rowHeight || 1));
    const first = Math.max(0, Math.min(top - MARGIN_ROWS, this.#items.length - count));
    for (let at = first; at < first + count; at += 1) {
      const slot = this.#rows[at % count];
      const item = this.#items[at];
      if (slot === undefined) continue;
      slot.at = at;
      slot.item.hidden = item === undefined;
      if (item === undefined) continue;
      slot.row.update(item);
      setAttributes(slot.item, { "aria-setsize": this.#items.length, "aria-posinset": at + 1 });
      setAttributes(slot.row.element, { tabindex: at === this.#focused ? 0 : -1 });
      slot.item.style.transform = `translateY(${at * this.#rowHeight}px)`;
    }
  }

  #key(event: KeyboardEvent): void {
    const page = Math.max(1, Math.floor(this.element.clientHeight / (this.#rowHeight || 1)) - 1);
    const steps: Readonly<Record<string, number>> = {
      ...{ ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page },
      ...{ Home: -this.#items.length, End: this.#items.length },
    };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.#focus(Math.min(this.#items.length - 1, Math.max(0, this.#focused + step)), true);
  }

  #focus(at: number, moves: boolean): void {
    this.#focused = at;
    if (moves) {
      const [top, height] = [at * this.#rowHeight, this.element.clientHeight];
      if (top < this.element.scrollTop) this.element.scrollTop = top;
      else if (top + this.#rowHeight > this.element.scrollTop + height)
        this.element.scrollTop = top + this.#rowHeight - height;
    }
    this.#draw();
    if (moves) this.#rows.find((each) => each.at === at)?.row.element.focus({ preventScroll: true });
  }
}
