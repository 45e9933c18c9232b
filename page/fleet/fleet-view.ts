/** The page of the fleet: how many boards are in which state, what is wrong where, and a search among all of them. */
import { ignore } from "@picolet/protocol/errors.ts";
import type {
  FleetBoard,
  FleetBoards,
  FleetChange,
  FleetCount,
  FleetOverview,
  FleetRollout,
  FleetRollouts,
} from "@picolet/protocol/page/fleet-data.ts";
import { make, setAttributes, setText } from "../elements/dom.ts";
import { count } from "../elements/format.ts";
import { type PageClient, RequestFailure } from "../elements/page-client.ts";
import { repeat } from "../elements/polling.ts";
import { badge, type Level, setBadge } from "../elements/status-badge.ts";
import { table } from "../elements/table.ts";
import { FleetMap } from "./fleet-map.ts";
import { countsOf, type FleetLetter, FleetModel, LETTERS, letterOf } from "./fleet-model.ts";
import { VirtualList, type VirtualRow } from "./virtual-list.ts";

const STATES: Readonly<Record<FleetLetter, { readonly name: string; readonly level: Level }>> = {
  r: { name: "Ready", level: "good" },
  p: { name: "With problems", level: "warning" },
  n: { name: "Not ready", level: "bad" },
  a: { name: "Away", level: "idle" },
};
const RETRY_MS = 5000;
const ROLLOUTS_INTERVAL_MS = 10_000;
const FORBIDDEN = 403;

export class FleetView implements Disposable {
  readonly element: HTMLElement;
  readonly #client: PageClient;
  readonly #failed: (error: unknown) => void;
  readonly #life = new AbortController();
  readonly #model = new FleetModel();
  readonly #facts = make("p", { class: "facts" });
  readonly #stale = make("p", { class: "problem", role: "status" });
  readonly #tiles = new Map<FleetLetter, { readonly button: HTMLButtonElement; readonly number: HTMLElement }>();
  readonly #map: FleetMap;
  readonly #versions = make("tbody");
  readonly #problems = make("tbody");
  readonly #noProblems = make("p", { class: "note" });
  readonly #rollouts = make("tbody");
  readonly #rolloutsNote = make("p", { class: "note" });
  readonly #search = make("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false" });
  readonly #found = make("p", { class: "note", role: "status" });
  readonly #list: VirtualList<FleetBoard>;
  #state: FleetLetter | undefined;
  #drawing = 0;

  /** @param linkOf the address of a board's page. @param failed called with each failed request */
  constructor(client: PageClient, linkOf: (name: string) => string, failed: (error: unknown) => void) {
    this.#client = client;
    this.#failed = failed;
    const nameOf = (at: number): string => this.#model.boards[at]?.name ?? "";
    this.#map = new FleetMap(nameOf, (name) => {
      location.hash = linkOf(name);
    });
    this.#list = new VirtualList("Boards", () => makeRow(linkOf));
    const tiles = LETTERS.map((letter) => make("li", {}, this.#makeTile(letter)));
    this.#search.addEventListener("input", () => this.#draw(true));
    const rollouts = ["Rollout", "What", "Phase", "Boards"];
    this.element = make(
      "div",
      {},
      make("h1", {}, "Fleet"),
      this.#facts,
      this.#stale,
      make("ul", { class: "tiles", "aria-label": "Boards by state; a button shows one state alone" }, ...tiles),
      card("Map", this.#map.element),
      card(
        "Boards",
        make(
          "div",
          { class: "search" },
          make("label", { for: "search" }, "Search by name, version or problem"),
          this.#search,
        ),
        this.#found,
        this.#list.element,
      ),
      card("What is wrong", this.#noProblems, table("Problems", ["Problem", "Boards"], this.#problems)),
      card("Versions", table("Versions of the agent", ["Version", "Boards"], this.#versions)),
      card("Rollouts", this.#rolloutsNote, table("Rollouts of updates", rollouts, this.#rollouts)),
    );
  }

  /** Until it is disposed of. */
  start(): void {
    const { signal } = this.#life;
    const failed = (error: unknown): void => {
      setText(this.#stale, `The hub does not answer: ${error instanceof Error ? error.message : String(error)}`);
      this.#failed(error);
    };
    void repeat(RETRY_MS, (stop) => this.#follow(stop), failed, signal);
    const ignored = ignore("the stream of the fleet shows that the hub does not answer");
    void repeat(ROLLOUTS_INTERVAL_MS, (stop) => this.#readRollouts(stop), ignored, signal);
  }

  [Symbol.dispose](): void {
    this.#life.abort();
    cancelAnimationFrame(this.#drawing);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const overview = await this.#client.json<FleetOverview>("overview", signal);
    setText(this.#stale, "");
    this.#showOverview(overview);
    const boards = await this.#client.json<FleetBoards>("boards", signal);
    this.#model.reset(boards);
    this.#draw();
    const since = encodeURIComponent(boards.revision);
    for await (const changes of this.#client.lines<FleetChange>(`changes?since=${since}`, signal)) {
      for (const change of changes) {
        if ("reset" in change) return;
        this.#model.apply(change);
      }
      if (changes.some((change) => "boards" in change && change.boards.length + change.gone.length > 0))
        this.#drawSoon();
    }
  }

  async #readRollouts(signal: AbortSignal): Promise<void> {
    try {
      const { items } = await this.#client.json<FleetRollouts>("rollouts", signal);
      setText(this.#rolloutsNote, items.length === 0 ? "There are no rollouts." : "");
      this.#rollouts.replaceChildren(...items.toReversed().map(rolloutRow));
    } catch (error) {
      const isForbidden = error instanceof RequestFailure && error.status === FORBIDDEN;
      setText(
        this.#rolloutsNote,
        isForbidden
          ? "You may not read them: they need list on ConfigMaps of the hub's namespace."
          : "They cannot be read now.",
      );
    }
  }

  #makeTile(letter: FleetLetter): HTMLButtonElement {
    const { name, level } = STATES[letter];
    const number = make("b", {}, "–");
    const key = make("span", { class: `key key-${letter}`, "aria-hidden": "true" });
    const button = make(
      "button",
      { type: "button", "aria-pressed": "false" },
      number,
      make("span", { class: level }, key, name),
    );
    button.addEventListener("click", () => {
      this.#state = this.#state === letter ? undefined : letter;
      for (const [each, tile] of this.#tiles)
        setAttributes(tile.button, { "aria-pressed": String(each === this.#state) });
      this.#draw(true);
    });
    this.#tiles.set(letter, { button, number });
    return button;
  }

  #showOverview({ version, map, versions, problems }: FleetOverview): void {
    setText(this.#facts, `${count(map.length, "board")} · hub ${version}`);
    this.#showCounts([...map].map(letterOf));
    this.#showTables(versions, problems);
  }

  #showCounts(letters: readonly FleetLetter[]): void {
    const counts = countsOf(letters);
    for (const [letter, { number }] of this.#tiles) setText(number, String(counts[letter]));
    this.#map.show(
      letters,
      LETTERS.map((letter) => `${counts[letter]} ${STATES[letter].name.toLowerCase()}`).join(", "),
    );
  }

  #showTables(versions: readonly FleetCount[], problems: readonly FleetCount[]): void {
    this.#versions.replaceChildren(...versions.map((each) => this.#countRow(each)));
    this.#problems.replaceChildren(...problems.map((each) => this.#countRow(each)));
    setText(this.#noProblems, problems.length === 0 ? "No board reports a problem." : "");
  }

  /** With a button that searches for it. */
  #countRow({ text, boards }: FleetCount): HTMLElement {
    const shown = text || "not known";
    const button = make("button", { type: "button" }, shown);
    button.addEventListener("click", () => {
      this.#search.value = text;
      this.#draw(true);
      this.#search.focus();
    });
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, text === "" ? shown : button),
      make("td", { class: "figure" }, String(boards)),
    );
  }

  #drawSoon(): void {
    cancelAnimationFrame(this.#drawing);
    this.#drawing = requestAnimationFrame(() => {
      const { boards } = this.#model;
      this.#showTables(tallied(boards, "version"), tallied(boards, "problem"));
      setText(this.#facts, `${count(boards.length, "board")}${this.#facts.textContent?.replace(/^[^·]*/, " ") ?? ""}`);
      this.#showCounts(boards.map(({ state }) => state));
      this.#draw();
    });
  }

  /** @param isOther true when the search has changed, false when the boards have */
  #draw(isOther = false): void {
    const found = this.#model.search(this.#search.value, this.#state);
    const all = this.#model.boards.length;
    setText(this.#found, found.length === all ? count(all, "board") : `${found.length} of ${count(all, "board")}`);
    this.#list.show(found, isOther);
  }
}

const MAX_COUNTS = 12;

function tallied(boards: readonly FleetBoard[], of: "version" | "problem"): readonly FleetCount[] {
  const counts = new Map<string, number>();
  for (const { [of]: text } of boards)
    if (text !== "" || of === "version") counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts]
    .map(([text, number]) => ({ text, boards: number }))
    .sort((a, b) => b.boards - a.boards)
    .slice(0, MAX_COUNTS);
}

function makeRow(linkOf: (name: string) => string): VirtualRow<FleetBoard> {
  const [name, problem, version] = [make("span", { class: "name" }), make("span"), make("span")];
  const state = badge();
  const element = make("a", {}, name, state, problem, version);
  const update = (board: FleetBoard): void => {
    const { name: word, level } = STATES[board.state];
    setAttributes(element, { href: `#${linkOf(board.name)}` });
    setText(name, board.name);
    setBadge(state, level, word);
    setText(problem, board.problem);
    setText(version, board.version);
  };
  return { element, update };
}

function rolloutRow({ name, kind, target, phase, message, selected, boards }: FleetRollout): HTMLElement {
  const states = Object.entries(boards).map(([state, number]) => `${number} ${state}`);
  const note = message === "" ? [] : [make("span", { class: "image" }, message)];
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, name),
    make("td", {}, kind, make("span", { class: "image" }, target)),
    make("td", {}, phase, ...note),
    make("td", {}, `${states.join(", ") || "none"} of ${selected}`),
  );
}

function card(name: string, ...children: readonly HTMLElement[]): HTMLElement {
  const id = `part-${name.toLowerCase().replaceAll(" ", "-")}`;
  return make("section", { class: "card", "aria-labelledby": id }, make("h2", { id }, name), ...children);
}
