/** Puts together the board's page and its history. What a visit needs is loaded with the first one. */
import { readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { PageHistory } from "@picolet/protocol/page/board-data.ts";
import type { PodAction } from "@picolet/protocol/page/pod-actions.ts";
import { RELEASED_AT_MS } from "@picolet/protocol/version.ts";
import { unloadModules } from "../../budget/unload-modules.ts";
import type { ContainerLogs } from "../../core/pods/container-logs.ts";
import type { NodeImages } from "../../core/pods/image-pulls.ts";
import type { PodEnder, PodMover } from "../../core/pods/pod-admission.ts";
import { HistoryRecorder, SAMPLE_INTERVAL } from "../../page/history-recorder.ts";
import type { PageActions } from "../../page/page-actions.ts";
import type { PageAnswer, PageAnswers } from "../../page/page-answers.ts";
import { PagePort } from "../../page/page-port.ts";
import type { PageServer } from "../../page/page-server.ts";
import type { PageOfNode } from "../../streams/kubelet-answers.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { AgentPorts } from "../node/agent-init.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";
import type { NodeUsageSampler } from "../node/node-usage.ts";
import { pushedPods } from "../pods/pod-sources.ts";
import { HistoryFiguresOfNode } from "./history-figures.ts";

export interface PagedNode {
  readonly view: NodeAgentView;
  readonly usage: NodeUsageSampler;
  readonly logs: ContainerLogs;
  readonly images: NodeImages;
  readonly workers: PodEnder & PodMover;
}

export interface NodePage {
  /** For a port of the page, and for the hub. */
  readonly answers: PageOfNode;
  readonly parts: readonly Component[];
}

/** Below the state folder: the ring of history, and the token and certificate of a port on the network. */
const FOLDER = "page";
const LOOPBACK = /^(?:127\.|::1$)/;
const NANOSECONDS_PER_MILLISECOND = 1_000_000;

const uptimeMs = (): number => Number(process.hrtime.bigint()) / NANOSECONDS_PER_MILLISECOND;

export function makePage(base: AgentBase, machine: AgentPorts, node: PagedNode): NodePage {
  const { ports, init } = base;
  const { clock, log } = ports;
  const { page, nodeName } = init.configuration;
  const folder = join(init.args.rootDir, FOLDER);
  const isTimeKnown = (): boolean => clock.isConfirmed || machine.clock.wall().getTime() >= RELEASED_AT_MS;
  const boot = { id: readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim(), uptimeMs };
  const figures = new HistoryFiguresOfNode(node.view, init.args.rootDir);
  const path = join(folder, "history");
  const history = new HistoryRecorder({ figures: () => figures.next(), boot, isTimeKnown, clock, log }, { path });

  let answers: Promise<PageAnswers> | undefined;
  const load = (): Promise<PageAnswers> => {
    answers ??= loadAnswers(base, node, async () => {
      const { readRing } = await import("../../page/history-ring.ts");
      const { pageHistory } = await import("../../page/page-history.ts");
      const { pending } = history;
      const blocks = [...(await readRing(path)), ...(pending === undefined ? [] : [pending])];
      const now = { boot: boot.id, uptimeMs: uptimeMs(), wall: clock.wall(), isTimeKnown: isTimeKnown() };
      return pageHistory(blocks, { ...now, intervalMs: SAMPLE_INTERVAL });
    });
    return answers;
  };
  const answer = async (url: string, signal: AbortSignal): Promise<PageAnswer> =>
    await (await load()).answer(url, signal);
  let actions: PageActions | undefined;
  const change = async (action: PodAction, user: string, signal: AbortSignal): Promise<PageAnswer> => {
    const { PageActions } = await import("../../page/page-actions.ts");
    actions ??= new PageActions({ view: node.view, workers: node.workers, pushed: pushedPods(base), clock, log });
    return await actions.change(action, user, signal);
  };

  const isOpen = page.anonymous || LOOPBACK.test(page.address);
  const open = async (): Promise<PageServer> => {
    const [{ PageServer }, { PageUsers }, { HubReviews }] = await Promise.all([
      import("../../page/page-server.ts"),
      import("../../page/page-users.ts"),
      import("../../kubelet-server/hub-reviews.ts"),
    ]);
    const users = new PageUsers({ reviews: new HubReviews({ hub: base.cluster.link }), clock }, { nodeName });
    const access = isOpen ? undefined : (await import("../../page/page-access.ts")).pageAccess(folder, nodeName);
    const names = [nodeName, `${nodeName}.local`];
    return await PageServer.open({ answer, change, users, log }, { names, access: await access });
  };
  const unload = (): void => {
    answers = undefined;
    unloadModules("page-server", "page-users", "page-access", "page-visit", "page-history", "history-ring");
  };
  return { answers: { answer, change }, parts: [history, new PagePort({ open, unload, clock, log }, page)] };
}

async function loadAnswers(
  { ports: { clock, log }, init, node: { maxPids }, startedAt }: AgentBase,
  { view, usage, logs, images }: PagedNode,
  history: () => Promise<PageHistory>,
): Promise<PageAnswers> {
  const { makeVisit } = await import("./page-visit.ts");
  const folder = join(dirname(realpathSync(process.argv[1] ?? "")), "page");
  return makeVisit(
    { view, usage, logs, images, history, clock, log },
    { configuration: init.configuration, rootDir: init.args.rootDir, maxPids, startedAt, folder },
  );
}
