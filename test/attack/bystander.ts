/**
 * Another client of the hub: asks for one small object again and again, from a thread of its own, and keeps the longest
 * wait.
 */
import { once } from "node:events";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { Agent, request } from "undici";

export interface BystanderInit {
  /** What is asked for: `https://127.0.0.1:6443/api/v1/namespaces/default`. */
  readonly url: string;
  readonly token: string;
  /** PEM. */
  readonly ca: string;
}

/** Between an answer and the next request. */
const PAUSE_MS = 5;

export class Bystander {
  readonly #worker: Worker;

  private constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** @returns once its first request was answered */
  static async start(init: BystanderInit): Promise<Bystander> {
    const worker = new Worker(new URL(import.meta.url), { workerData: init });
    await once(worker, "message");
    return new Bystander(worker);
  }

  /** @returns the longest wait, in milliseconds; that of a request under way counts */
  async end(): Promise<number> {
    this.#worker.postMessage("end");
    const [longest] = (await once(this.#worker, "message")) as [number];
    await this.#worker.terminate();
    return longest;
  }
}

async function ask({ url, token, ca }: BystanderInit): Promise<void> {
  const dispatcher = new Agent({ connect: { ca }, connections: 1 });
  let [longest, isOver, isFirst] = [0, false, true];
  parentPort?.on("message", () => {
    isOver = true;
  });
  while (!isOver) {
    const startedAt = performance.now();
    const { statusCode, body } = await request(url, { dispatcher, headers: { authorization: `Bearer ${token}` } });
    await body.dump();
    if (statusCode !== 200) throw new Error(`the bystander was answered with ${statusCode}`);
    // The first one includes the connection.
    if (isFirst) parentPort?.postMessage("ready");
    else longest = Math.max(longest, performance.now() - startedAt);
    isFirst = false;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  parentPort?.postMessage(longest);
  await dispatcher.close();
}

if (!isMainThread && workerData !== null) await ask(workerData as BystanderInit);
