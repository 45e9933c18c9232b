/** The hub's real page of a fleet whose boards are made up: as many as one likes. */
import { writeFileSync } from "node:fs";
import { pageAccess } from "@picolet/agent/page/page-access.ts";
import { FleetPagePort, PAGE_PORT_LIMITS, type PageQuestion } from "@picolet/hub/page/fleet-page-port.ts";
import type { FleetBoardView, FleetNodes } from "@picolet/hub-core/fleet.ts";
import { ConnectionGate } from "@picolet/kubelet-api/fairness/connection-gate.ts";
import { httpFailure } from "@picolet/kubelet-api/serving/http-answers.ts";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { FleetRollouts } from "@picolet/protocol/page/fleet-data.ts";
import { pageFiles } from "@picolet/scripts/build/page-files.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { RecordedLog } from "../unit/ports/recorders.ts";

export const FLEET_TOKEN = "a-token-that-the-hub-knows";
/** Knows the fleet, and may see no rollouts and no boards. */
export const LESSER_TOKEN = "a-token-with-fewer-rights";

/** Knows the fleet and its boards, and may delete pods of the namespace `shop`. */
export const SHOP_TOKEN = "a-token-for-the-shop";

const GOOD: FleetBoardView = {
  conditions: "DiskPressure=False,MemoryPressure=False,Ready=True",
  version: "v1.34.0-picolet.0.1.0",
  updateReport: undefined,
};

export const boardName = (index: number): string => `board-${String(index).padStart(5, "0")}`;

export class FakeFleet implements FleetNodes {
  readonly synced = new WatchSource(true);
  readonly #boards = new Map<string, FleetBoardView>();
  readonly #followers = new Set<(name: string) => void>();

  constructor(count: number) {
    for (let index = 0; index < count; index += 1) {
      const version = index % 5 === 0 ? "v1.34.0-picolet.0.0.9" : GOOD.version;
      const conditions =
        index % 97 === 3
          ? "Ready=Unknown"
          : index % 211 === 5
            ? "Ready=False"
            : index % 53 === 7
              ? "MemoryPressure=True,Ready=True"
              : GOOD.conditions;
      this.#boards.set(boardName(index), { ...GOOD, version, conditions });
    }
  }

  /** @param board undefined: it goes */
  set(name: string, board: Partial<FleetBoardView> | undefined): void {
    if (board === undefined) this.#boards.delete(name);
    else this.#boards.set(name, { ...GOOD, ...this.#boards.get(name), ...board });
    for (const follower of this.#followers) follower(name);
  }

  names(): Iterable<string> {
    return this.#boards.keys();
  }

  node(): undefined {
    return undefined;
  }

  view(name: string): FleetBoardView | undefined {
    return this.#boards.get(name);
  }

  follow(onChange: (name: string) => void): Disposable {
    this.#followers.add(onChange);
    return { [Symbol.dispose]: () => void this.#followers.delete(onChange) };
  }

  /** Those who follow now. */
  get followers(): number {
    return this.#followers.size;
  }
}

const ROLLOUTS: FleetRollouts = {
  items: [
    {
      ...{ name: "os-2026-11", kind: "os", target: "registry.example/picolet-os:2026.11", phase: "Progressing" },
      ...{ message: "12 boards have it", selected: 400, boards: { pending: 380, updating: 8, done: 12 } },
    },
  ],
};

export class FleetPages implements AsyncDisposable {
  readonly fleet: FakeFleet;
  readonly port: number;
  readonly asked: string[] = [];
  readonly #folder: TempFolder;
  readonly #page: FleetPagePort;
  readonly #life = joinSignals();
  readonly #running: Promise<void>;

  private constructor(fleet: FakeFleet, folder: TempFolder, page: FleetPagePort, port: number, asked: string[]) {
    this.fleet = fleet;
    this.port = port;
    this.asked = asked;
    this.#folder = folder;
    this.#page = page;
    this.#running = page.run(this.#life.signal).catch(() => undefined);
  }

  static async start(count: number): Promise<FleetPages> {
    const folder = new TempFolder();
    for (const { name, content } of await pageFiles("fleet")) writeFileSync(folder.at(name), content);
    const { keyAndCertificate: pem } = await pageAccess(folder.at("access"), "hub");
    const fleet = new FakeFleet(count);
    const clock = systemClock;
    const log = new RecordedLog();
    const asked: string[] = [];
    const page = new FleetPagePort(
      {
        ...{ nodes: fleet, clock, log, statusOf: httpFailure },
        tls: new WatchSource({ certificateChain: pem, privateKey: pem }),
        gate: new ConnectionGate({ clock, log }, PAGE_PORT_LIMITS),
        authorize: async ({ headers }, question) => authorize(headers.authorization, question),
        rollouts: async () => ROLLOUTS,
        askBoard: async (node, request, response) => {
          const { kind } = request;
          asked.push(kind === "read" ? `${node} ${request.url}` : `${node} ${JSON.stringify(request)}`);
          response.writeHead(200, { "content-type": "application/json" });
          response.end("{}");
        },
      },
      { host: "127.0.0.1", port: 0, version: "0.1.0", folder: folder.path },
    );
    return new FleetPages(fleet, folder, page, await page.listen(), asked);
  }

  get url(): string {
    return `https://127.0.0.1:${this.port}/page/`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.#running;
    await this.#page[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
  }
}

function authorize(authorization: string | undefined, question: PageQuestion): string {
  const { kind } = question;
  if (authorization === `Bearer ${SHOP_TOKEN}`) {
    if (kind !== "pods" || question.namespace === "shop") return "shopkeeper";
    throw new PicoletError("permission_denied", "Forbidden (user=shopkeeper)");
  }
  if (authorization === `Bearer ${FLEET_TOKEN}`) return "admin";
  if (authorization !== `Bearer ${LESSER_TOKEN}`)
    throw new PicoletError("permission_denied", "Unauthorized", { reason: "Unauthorized" });
  if (kind === "fleet") return "viewer";
  throw new PicoletError("permission_denied", "Forbidden (user=viewer)");
}
