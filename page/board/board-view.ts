/** The page of one board: what it shows, read again while the page is seen. */
import type { EventList, EventObject, ImageList, StatusAnswer, WatchLine } from "@picolet/protocol/local-api/status.ts";
import type { PageHistory, PagePods, PageThresholds } from "@picolet/protocol/page/board-data.ts";
import type { PodAction } from "@picolet/protocol/page/pod-actions.ts";
import { KeyedChildren, make, setAttributes, setText } from "../elements/dom.ts";
import { ageText, bytesText, count, durationText } from "../elements/format.ts";
import { type PageClient, RequestFailure } from "../elements/page-client.ts";
import { repeat } from "../elements/polling.ts";
import { badge, type Level, setBadge } from "../elements/status-badge.ts";
import { table } from "../elements/table.ts";
import { HistoryView } from "./history-view.ts";
import { LogView } from "./log-view.ts";
import { PodChangeView } from "./pod-change-view.ts";
import { type PodReport, type PodRow, PodsView } from "./pods-view.ts";
import { ResourcesView, type Summary } from "./resources-view.ts";

const STATUS_INTERVAL_MS = 5000;
/** For data that changes slowly, or costs the board more. */
const SLOW_INTERVAL_MS = 60_000;
/** HTTP statuses from here on are faults of the board. */
const SERVER_FAULT = 500;
const EVENT_RETRY_MS = 10_000;
/** Bounds the rows of the page; the board keeps more, and edgectl shows them. */
const MAX_EVENTS = 200;
const SECTIONS = ["Resources", "Pods", "Events", "History", "Images", "Tunnel", "Disk"] as const;

export class BoardView implements Disposable {
  readonly element: HTMLElement;
  readonly #client: PageClient;
  readonly #life = new AbortController();
  readonly #failed: (error: unknown) => void;
  readonly #name = make("h1", {}, "Board");
  readonly #badge = badge();
  readonly #facts = make("p", { class: "facts" });
  readonly #stale = make("p", { class: "problem", role: "status" });
  readonly #problems = make("ul", { class: "problems", "aria-label": "Problems" });
  readonly #problemRows = new KeyedChildren<string>(this.#problems, (text) => {
    return { element: make("li", {}, text), update: () => undefined };
  });
  readonly #resources = new ResourcesView();
  readonly #pods: PodsView;
  readonly #change: PodChangeView;
  readonly #log: LogView;
  readonly #history = new HistoryView();
  readonly #events = make("ol", { class: "events" });
  readonly #images = make("tbody");
  readonly #imagesNote = make("p", { class: "note" });
  readonly #tunnel = make("dl", { class: "pairs" });
  readonly #disk = make("dl", { class: "pairs" });
  readonly #seen = new Map<string, EventObject>();
  #nowMs = Date.now();
  #readAt = Date.now();

  /**
   * @param failed called with each failed request; a later one may succeed
   * @param signIn called when a user wants to enter a token; undefined: the user has
   */
  constructor(client: PageClient, failed: (error: unknown) => void, signIn?: () => void) {
    this.#client = client;
    this.#failed = failed;
    this.#log = new LogView(client);
    this.#change = new PodChangeView(client, signIn);
    const change = (verb: PodAction["verb"], pod: PodReport): void => this.#change.ask(verb, pod);
    this.#pods = new PodsView({
      openLog: (pod, container) => this.#log.open(pod, container),
      change: client.hasToken ? change : undefined,
    });
    const links = SECTIONS.map((name) => make("li", {}, make("a", { href: `#${idOf(name)}` }, name)));
    const nav = make("nav", { "aria-label": "Parts of this page" }, make("ul", {}, ...links));
    // A fragment would be the fleet page's own address.
    nav.addEventListener("click", jump);
    this.element = make(
      "div",
      { class: "board" },
      make("div", { class: "title" }, this.#name, this.#badge),
      this.#facts,
      this.#stale,
      this.#problems,
      nav,
      section("Resources", this.#resources.element),
      section("Pods", this.#change.element, this.#pods.element, this.#log.element),
      section("Events", make("p", { class: "note" }, "The newest first."), this.#events),
      section("History", this.#history.element),
      section("Images", this.#imagesNote, table("Images", ["Image", "Size", "Runtime"], this.#images)),
      section("Tunnel", this.#tunnel),
      section("Disk", this.#disk),
    );
  }

  /** Until it is disposed of. */
  start(): void {
    const { signal } = this.#life;
    const failed = (error: unknown): void => this.#fail(error);
    void repeat(STATUS_INTERVAL_MS, (stop) => this.#readStatus(stop), failed, signal);
    void repeat(SLOW_INTERVAL_MS, (stop) => this.#readSlow(stop), failed, signal);
    void repeat(EVENT_RETRY_MS, (stop) => this.#followEvents(stop), failed, signal);
  }

  [Symbol.dispose](): void {
    this.#life.abort();
    this.#change[Symbol.dispose]();
    this.#log[Symbol.dispose]();
  }

  #fail(error: unknown): void {
    const age = durationText(Date.now() - this.#readAt);
    setText(this.#stale, `The board does not answer: ${messageOf(error)}. What is shown is ${age} old.`);
    this.#failed(error);
  }

  async #readStatus(signal: AbortSignal): Promise<void> {
    const problems: string[] = [];
    // A file system that cannot be read hides neither the node's state nor its pods.
    const unmeasured =
      <T>(none: T) =>
      (error: unknown): T => {
        if (error instanceof RequestFailure && error.status < SERVER_FAULT) throw error;
        problems.push(`Not everything can be measured: ${messageOf(error)}.`);
        return none;
      };
    const [status, pods, summary, thresholds] = await Promise.all([
      this.#client.json<StatusAnswer>("status", signal),
      this.#client.json<PagePods>("pods", signal),
      this.#client.json<Summary>("summary", signal).catch(unmeasured<Summary>({})),
      this.#client.json<PageThresholds>("thresholds", signal).catch(unmeasured<PageThresholds>({ items: [] })),
    ]);
    this.#readAt = Date.now();
    setText(this.#stale, problems.join(" "));
    this.#nowMs = Date.parse(summary.node?.memory?.time ?? "") || Date.now();
    this.#showHead(status);
    this.#resources.show(status, summary, thresholds);
    this.#pods.show(podRows(status, pods, summary), this.#nowMs);
    this.#showTunnel(status);
    this.#showDisk(status);
    this.#showEvents();
  }

  async #readSlow(signal: AbortSignal): Promise<void> {
    this.#history.show(await this.#client.json<PageHistory>("history", signal));
    const { items, problems, pulls } = await this.#client.json<ImageList>("images", signal);
    const rows = items.toSorted((a, b) => b.sizeBytes - a.sizeBytes);
    this.#images.replaceChildren(
      ...rows.map(({ tags, digests, id, sizeBytes, runtime, pinned }) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, [...tags, ...digests][0] ?? id, pinned ? " (pinned)" : ""),
          make("td", { class: "figure" }, bytesText(sizeBytes)),
          make("td", {}, runtime),
        ),
      ),
    );
    const notes = [
      ...pulls.map(({ image, state, bytes, totalBytes }) => {
        const progress = totalBytes === null ? "" : `, ${bytesText(bytes)} of ${bytesText(totalBytes)}`;
        return `${image}: ${state}${progress}`;
      }),
      ...problems.map(({ runtime, message }) => `${runtime}: ${message}`),
    ];
    setText(this.#imagesNote, items.length === 0 && notes.length === 0 ? "There are no images." : notes.join(" · "));
  }

  async #followEvents(signal: AbortSignal): Promise<void> {
    const { items } = await this.#client.json<EventList>(`events?limit=${MAX_EVENTS}`, signal);
    for (const event of items) this.#seen.set(event.metadata.name, event);
    this.#showEvents();
    for await (const lines of this.#client.lines<WatchLine<EventObject>>("events?watch=true&limit=0", signal)) {
      for (const line of lines) if (line.type !== "ERROR") this.#seen.set(line.object.metadata.name, line.object);
      this.#showEvents();
    }
  }

  readonly #eventRows = new KeyedChildren<EventObject>(this.#events, () => {
    const [when, reason, object] = [make("span", { class: "when" }), make("b"), make("span", { class: "object" })];
    const message = make("span", { class: "message" });
    const element = make("li", {}, when, " ", reason, " ", object, " ", message);
    const update = (event: EventObject): void => {
      const { involvedObject: about, count: times, lastTimestamp, type } = event;
      setAttributes(element, { class: type === "Warning" ? "warning" : "" });
      setText(when, `${ageText(lastTimestamp, this.#nowMs)}${times > 1 ? ` (${times}×)` : ""}`);
      setText(object, `${about.kind.toLowerCase()}/${about.name}`);
      setText(reason, type === "Warning" ? `⚠ ${event.reason}` : event.reason);
      setText(message, event.message);
    };
    return { element, update };
  });

  #showEvents(): void {
    const sequence = ({ metadata }: EventObject): number => Number(metadata.resourceVersion);
    const newest = (event: EventObject): string => event.lastTimestamp;
    const events = [...this.#seen.values()].sort(
      (a, b) => newest(b).localeCompare(newest(a)) || sequence(b) - sequence(a),
    );
    for (const event of events.slice(MAX_EVENTS)) this.#seen.delete(event.metadata.name);
    this.#eventRows.show(events.slice(0, MAX_EVENTS), ({ metadata }) => metadata.name);
  }

  #showHead(status: StatusAnswer): void {
    const { node, ready, conditions, runtimes, agent, problems, pods } = status;
    setText(this.#name, node);
    const wrong = conditions.filter((each) => each.type !== "Ready" && each.status === "True");
    const level: Level = !ready ? "bad" : wrong.length > 0 ? "warning" : "good";
    setBadge(this.#badge, level, !ready ? "Not ready" : wrong.length > 0 ? "Ready, with problems" : "Ready");
    const facts = [
      ...runtimes.map((each) => `${each.runtime || each.name} ${each.version}`.trim()),
      `picolet ${agent.version}, running for ${ageText(agent.startedAt, this.#nowMs)}`,
      count(pods.length, "pod"),
    ];
    setText(this.#facts, facts.join(" · "));
    const notReady = conditions.filter((each) => each.type === "Ready" && each.status !== "True");
    const all = [
      ...[...notReady, ...wrong].map(({ type, reason, message }) => `${type}: ${message || reason}`),
      ...runtimes.filter((each) => !each.ready).map(({ name, message }) => `Runtime ${name}: ${message}`),
      ...problems.map(({ origin, line, message }) => `${origin}${line === null ? "" : `:${line}`}: ${message}`),
    ];
    this.#problemRows.show([...new Set(all)], (text) => text);
    this.#problems.hidden = all.length === 0;
  }

  #showTunnel({ tunnel }: StatusAnswer): void {
    const { state, since, rttMs, hub, problem, pendingStatuses, bytesSent, bytesReceived } = tunnel;
    showPairs(this.#tunnel, [
      ["State", `${state}${since === null ? "" : ` for ${ageText(since, this.#nowMs)}`}`],
      ["Hub", hub ?? "none: this board belongs to no hub"],
      ["Round trip", rttMs === null ? "" : `${Math.round(rttMs)} ms`],
      ["Problem", problem ?? ""],
      ["Statuses not acknowledged", pendingStatuses === undefined ? "" : String(pendingStatuses)],
      ["Sent, received", bytesSent === undefined ? "" : `${bytesText(bytesSent)}, ${bytesText(bytesReceived)}`],
    ]);
  }

  #showDisk({ flash, resources, conditions }: StatusAnswer): void {
    const { today, dailyAverage, budgetBytes, agentBudgetBytes, disks } = flash;
    const wear = conditions.filter(({ type }) => /flash|storage|wear|card/i.test(type));
    showPairs(this.#disk, [
      ["Disks", disks.length === 0 ? "not known" : disks.join(", ")],
      ["Free", `${bytesText(resources.diskAvailableBytes)} of ${bytesText(resources.diskBytes)}`],
      [
        "Written today",
        `${bytesText(today.bytes)}${budgetBytes === null ? "" : ` of ${bytesText(budgetBytes)} a day`}`,
      ],
      ["By the agent", `${bytesText(today.agentBytes)} of ${bytesText(agentBudgetBytes)} a day`],
      [
        "Daily average",
        dailyAverage === null ? "" : `${bytesText(dailyAverage.bytes)} over ${count(dailyAverage.days, "day")}`,
      ],
      ["Most by pods", today.pods.map(({ name, bytes }) => `${name} ${bytesText(bytes)}`).join(", ")],
      ...wear.map(({ type, status, message }) => [type, `${status}${message === "" ? "" : `: ${message}`}`] as const),
    ]);
  }
}

const idOf = (name: string): string => `part-${name.toLowerCase()}`;

function jump(event: Event): void {
  const link = event.target;
  if (!(link instanceof HTMLAnchorElement)) return;
  event.preventDefault();
  const heading = document.getElementById(link.hash.slice(1));
  heading?.scrollIntoView({ block: "start" });
  heading?.focus({ preventScroll: true });
}

function section(name: string, ...children: readonly HTMLElement[]): HTMLElement {
  const heading = make("h2", { id: idOf(name), tabindex: -1 }, name);
  return make("section", { class: "card", "aria-labelledby": idOf(name) }, heading, ...children);
}

function showPairs(list: HTMLElement, pairs: readonly (readonly [name: string, text: string])[]): void {
  const shown = pairs.filter(([, text]) => text !== "");
  list.replaceChildren(...shown.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text))));
}

function podRows(status: StatusAnswer, { items }: PagePods, { pods = [] }: Summary): readonly PodRow[] {
  return status.pods.map((report) => {
    const isIt = (each: { readonly namespace: string; readonly name: string }): boolean =>
      each.namespace === report.namespace && each.name === report.name;
    return {
      report,
      pod: items.find(isIt),
      usage: pods.find(({ podRef }) => podRef !== undefined && isIt(podRef)),
    };
  });
}

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message.replace(/[.]+$/, "") : String(error);
