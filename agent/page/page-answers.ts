/** Answers what the page of the board asks for, on its own port and through the hub. Loaded with the first question. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import {
  PAGE_DATA_PATH,
  PAGE_PATH,
  type PageContainer,
  type PageHistory,
  type PagePod,
  type PagePods,
  type PageThresholds,
} from "@picolet/protocol/page/board-data.ts";
import { pageFileOf } from "@picolet/protocol/page/page-headers.ts";
import type { ContainerStatus } from "@picolet/protocol/pod/pod.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { AgentView } from "../api/agent-view.ts";
import { type Answer, HTTP_STATUS } from "../api/api-answers.ts";
import { ApiHandler } from "../api/api-handler.ts";
import { sortPods } from "../api/pod-objects.ts";
import { type ApiRequest, parseRequest } from "../api/request-input.ts";
import type { NodeStats } from "../core/node/node-stats.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { ContainerLogs } from "../core/pods/container-logs.ts";
import type { NodeImages } from "../core/pods/image-pulls.ts";
import { PENDING_STATUS, podObject } from "../core/pods/pod-object.ts";

export interface PageAnswersComponents {
  readonly view: AgentView;
  readonly logs: ContainerLogs;
  readonly images: NodeImages;
  readonly stats: NodeStats;
  readonly thresholds: (signal: AbortSignal) => Promise<PageThresholds>;
  readonly history: () => Promise<PageHistory>;
  readonly clock: Clock;
}

export interface PageAnswersInit {
  /** The folder of the page's static files. */
  readonly folder: string;
}

export interface PageAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>;
  /** True for one that may go on for as long as its reader stays. */
  readonly isStream: boolean;
}

const JSON_TYPE = "application/json";
/** Bounds a path with its query: three names of 253 characters, encoded. */
const MAX_PATH_LENGTH = 4096;

/** It only reads: nothing here changes anything. */
export class PageAnswers {
  readonly #components: PageAnswersComponents;
  readonly #folder: string;
  readonly #api: ApiHandler;

  constructor(components: PageAnswersComponents, { folder }: PageAnswersInit) {
    this.#components = components;
    this.#folder = folder;
    // Without the ports that change anything.
    this.#api = new ApiHandler(components);
  }

  /** Never throws, but what is asked for aborts with `signal`. @param url path and query, from `/page/` on */
  async answer(url: string, signal: AbortSignal): Promise<PageAnswer> {
    try {
      if (url.length > MAX_PATH_LENGTH) throw new PicoletError("invalid", "the path is too long");
      if (url.startsWith(PAGE_DATA_PATH)) return await this.#data(url.slice(PAGE_DATA_PATH.length), signal);
      const [path = ""] = url.split("?", 1);
      return await this.#file(path.slice(PAGE_PATH.length));
    } catch (error) {
      if (signal.aborted) throw error;
      return failure(error);
    }
  }

  async #file(path: string): Promise<PageAnswer> {
    const found = pageFileOf(path);
    if (found === undefined) throw new PicoletError("not_found", "the page has no such file");
    const content = await readFile(join(this.#folder, found.file));
    return { status: 200, contentType: found.contentType, body: [content], isStream: false };
  }

  async #data(rest: string, signal: AbortSignal): Promise<PageAnswer> {
    const request = parseRequest("GET", `/v1/${rest}`);
    const answer = await this.#read(request, signal);
    switch (answer.kind) {
      case "json":
        return { status: 200, contentType: JSON_TYPE, body: [`${JSON.stringify(answer.body)}\n`], isStream: false };
      case "pieces":
        return { status: 200, contentType: JSON_TYPE, body: answer.pieces, isStream: false };
      case "stream": {
        // A browser shows nothing of a type with "text" that is no text; a log may be anything.
        const contentType = answer.contentType === "text/plain" ? "text/plain; charset=utf-8" : answer.contentType;
        return { status: 200, contentType, body: await answer.open(), isStream: true };
      }
      case "bytes":
        throw new PicoletError("not_found", "the page has no such data");
      default:
        return answer satisfies never;
    }
  }

  async #read({ segments, query }: ApiRequest, signal: AbortSignal): Promise<Answer> {
    const { stats, thresholds, history } = this.#components;
    const [first = "", namespace = "", name = "", ...more] = segments;
    const end = (): void => query.end();
    switch (segments.length === 1 ? first : more.length === 0 && name !== "" ? `${first}/*/*` : "") {
      case "status":
        return this.#api.status(query);
      case "events":
        return this.#api.events(query, signal);
      case "images":
        return await this.#api.images.list(query, signal);
      case "pods":
        end();
        return { kind: "json", body: this.#pods() };
      case "summary":
        end();
        return { kind: "json", body: await stats.summary({ onlyCpuAndMemory: false }, signal) };
      case "thresholds":
        end();
        return { kind: "json", body: await thresholds(signal) };
      case "history":
        end();
        return { kind: "json", body: await history() };
      case "log/*/*":
        return await this.#api.log(namespace, name, query, signal);
      default:
        throw new PicoletError("not_found", "the page has no such data");
    }
  }

  #pods(): PagePods {
    return { items: sortPods(this.#components.view.pods()).map(pagePod) };
  }
}

function failure(error: unknown): PageAnswer {
  const code = error instanceof PicoletError ? error.code : "internal";
  const message = error instanceof PicoletError ? error.message : "the agent cannot answer; its log says why";
  const body = `${JSON.stringify({ error: { code, message } })}\n`;
  return { status: HTTP_STATUS[code], contentType: JSON_TYPE, body: [body], isStream: false };
}

function pagePod(agentPod: AgentPod): PagePod {
  const { metadata, spec, status = PENDING_STATUS } = podObject(agentPod);
  const { initContainerStatuses = [], containerStatuses = [], ephemeralContainerStatuses = [] } = status;
  const { initContainers = [], containers, ephemeralContainers = [] } = spec;
  const of = (
    kind: PageContainer["kind"],
    wanted: readonly { readonly name: string; readonly image?: string | undefined }[],
    statuses: readonly ContainerStatus[],
  ): PageContainer[] =>
    wanted.map(({ name, image = "" }) => {
      const found = statuses.find((each) => each.name === name);
      return { name, kind, image, ...stateOf(found) };
    });
  return {
    ...{ namespace: metadata.namespace, name: metadata.name, phase: status.phase },
    podIP: status.podIP ?? "",
    qosClass: status.qosClass ?? "",
    containers: [
      ...of("init", initContainers, initContainerStatuses),
      ...of("container", containers, containerStatuses),
      ...of("ephemeral", ephemeralContainers, ephemeralContainerStatuses),
    ],
  };
}

function stateOf(
  status: ContainerStatus | undefined,
): Pick<PageContainer, "state" | "reason" | "ready" | "restarts" | "startedAt"> {
  const { waiting, running, terminated } = status?.state ?? {};
  const ended = terminated === undefined ? "" : `${terminated.reason || "Error"} (exit code ${terminated.exitCode})`;
  return {
    state: running !== undefined ? "running" : terminated !== undefined ? "terminated" : "waiting",
    reason: running !== undefined ? "" : ended || (waiting?.reason ?? ""),
    ready: status?.ready ?? false,
    restarts: status?.restartCount ?? 0,
    startedAt: running?.startedAt ?? "",
  };
}
