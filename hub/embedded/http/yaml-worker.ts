/** The thread that reads one large YAML body and ends. */
import { parentPort, workerData } from "node:worker_threads";
import { readYaml } from "./yaml-text.ts";

parentPort?.postMessage(readYaml(String(workerData)));
