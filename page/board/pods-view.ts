/** The pods with their containers, and a button for the log of each. */
import type { StatusAnswer } from "@picolet/protocol/local-api/status.ts";
import type { PageContainer, PagePod } from "@picolet/protocol/page/board-data.ts";
import type { PodAction } from "@picolet/protocol/page/pod-actions.ts";
import { KeyedChildren, make, setAttributes, setText } from "../elements/dom.ts";
import { ageText, bytesText, count } from "../elements/format.ts";
import { badge, type Level, setBadge } from "../elements/status-badge.ts";
import type { UsageSummary } from "./resources-view.ts";

export type PodReport = StatusAnswer["pods"][number];

export interface PodRow {
  readonly report: PodReport;
  /** Undefined: it has come or gone between two requests. */
  readonly pod: PagePod | undefined;
  readonly usage:
    | (UsageSummary & { readonly containers?: readonly (UsageSummary & { readonly name: string })[] })
    | undefined;
}

interface ContainerRow {
  readonly container: PageContainer;
  readonly usage: UsageSummary | undefined;
}

export interface NamedPod {
  readonly namespace: string;
  readonly name: string;
}

export interface PodsViewInit {
  /** Called when a user asks for the log of a container. */
  readonly openLog: (pod: NamedPod, container: string) => void;
  /** Called when a user asks for a restart or deletion; undefined: no user is signed in. */
  readonly change: ((verb: PodAction["verb"], pod: PodReport) => void) | undefined;
}

const NANO_PER_MILLI = 1_000_000;

export class PodsView {
  readonly element: HTMLElement;
  readonly #list = make("ul", { class: "pods" });
  readonly #note = make("p", { class: "note" });
  readonly #rows: KeyedChildren<PodRow>;
  #nowMs = 0;

  constructor(init: PodsViewInit) {
    this.element = make("div", {}, this.#note, this.#list);
    this.#rows = new KeyedChildren(this.#list, (row) => this.#makePod(row, init));
  }

  show(rows: readonly PodRow[], nowMs: number): void {
    this.#nowMs = nowMs;
    const ready = rows.filter(({ report }) => report.isWell).length;
    setText(this.#note, rows.length === 0 ? "There are no pods." : `${ready} of ${count(rows.length, "pod")} well`);
    this.#rows.show(rows, ({ report }) => `${report.namespace}/${report.name}/${report.uid}`);
  }

  #makePod({ report }: PodRow, { openLog, change }: PodsViewInit) {
    const state = badge();
    const facts = make("p", { class: "facts" });
    const message = make("p", { class: "message" });
    const body = make("tbody");
    const containers = new KeyedChildren<ContainerRow>(body, (row) =>
      this.#makeContainer(row, (container) => openLog(report, container)),
    );
    const columns = ["Container", "Log", "State", "CPU", "Memory", "Restarts"];
    const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)));
    const name = report.name;
    const label = `Containers of ${name}`;
    const table = make("table", {}, make("caption", { class: "hidden" }, label), make("thead", {}, head), body);
    const element = make(
      "li",
      { class: "pod" },
      make(
        "details",
        {},
        make(
          "summary",
          {},
          make("span", { class: "pod-name" }, name),
          make("span", { class: "pod-namespace" }, report.namespace),
          state,
        ),
        facts,
        message,
        ...(change === undefined ? [] : [changeButtons(report, change)]),
        make("div", { class: "scroll", role: "group", "aria-label": label, tabindex: 0 }, table),
      ),
    );
    const update = ({ report: now, pod, usage }: PodRow): void => {
      const { summary } = now;
      setBadge(state, levelOf(now), `${summary.status} ${summary.readyContainers}/${summary.totalContainers}`);
      const kind = now.runtime === "wasm" ? "component" : now.runtime === "" ? "no runtime" : now.runtime;
      const parts = [
        `${kind}, from ${now.source}`,
        `${ageText(now.createdAt, this.#nowMs)} old`,
        count(now.restarts, "restart"),
        usage === undefined ? "" : `CPU ${cpuText(usage)}, memory ${memoryText(usage)}`,
        pod?.podIP ?? "",
        pod?.qosClass ?? "",
      ];
      setText(facts, parts.filter((part) => part !== "").join(" · "));
      setText(message, now.message);
      message.hidden = now.message === "";
      const rows = (pod?.containers ?? []).map((container): ContainerRow => {
        return { container, usage: usage?.containers?.find((each) => each.name === container.name) };
      });
      containers.show(rows, ({ container }) => `${container.kind}/${container.name}`);
    };
    return { element, update };
  }

  #makeContainer({ container: { name } }: ContainerRow, openLog: (container: string) => void) {
    const button = make("button", { type: "button", "aria-label": `Log of ${name}` }, "Log");
    button.addEventListener("click", () => openLog(name));
    const image = make("span", { class: "image" });
    const [state, cpu, memory, restarts] = [make("td"), make("td"), make("td"), make("td")];
    for (const cell of [cpu, memory, restarts]) setAttributes(cell, { class: "figure" });
    const heading = make("th", { scope: "row" }, name, image);
    const element = make("tr", {}, heading, make("td", {}, button), state, cpu, memory, restarts);
    const update = ({ container, usage }: ContainerRow): void => {
      setText(image, container.image);
      const since = container.state === "running" ? ` for ${ageText(container.startedAt, this.#nowMs)}` : "";
      const kind = container.kind === "container" ? "" : ` (${container.kind})`;
      const reason = container.reason === "" ? "" : `: ${container.reason}`;
      setText(state, `${container.state}${since}${reason}${kind}`);
      setText(cpu, usage === undefined ? "–" : cpuText(usage));
      setText(memory, usage === undefined ? "–" : memoryText(usage));
      setText(restarts, String(container.restarts));
    };
    return { element, update };
  }
}

function changeButtons(report: PodReport, change: NonNullable<PodsViewInit["change"]>): HTMLElement {
  const buttons = (["restart", "delete"] as const).map((verb) => {
    const name = verb === "restart" ? "Restart" : "Delete";
    const button = make("button", { type: "button", "aria-label": `${name} ${report.name}` }, name);
    button.addEventListener("click", () => change(verb, report));
    return button;
  });
  return make("div", { class: "row changes" }, ...buttons);
}

function levelOf(report: PodReport): Level {
  if (report.phase === "Succeeded") return "idle";
  if (report.ready && report.isWell) return "good";
  return report.phase === "Failed" ? "bad" : "warning";
}

const cpuText = ({ cpu }: UsageSummary): string =>
  cpu?.usageNanoCores === undefined ? "–" : `${Math.round(cpu.usageNanoCores / NANO_PER_MILLI)}m`;

const memoryText = ({ memory }: UsageSummary): string => bytesText(memory?.workingSetBytes);
