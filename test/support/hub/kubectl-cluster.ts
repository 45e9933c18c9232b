/** The embedded API server of unit tests, with a real kubectl in front of it. */
import { execFile } from "node:child_process";
import { type KubectlVersion, kubectlPath } from "@picolet/scripts/test/install-kubectl.ts";
import { EmbeddedCluster, type EmbeddedClusterInit } from "../unit/embedded/in-process-cluster.ts";

export interface KubectlAnswer {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export class KubectlCluster extends EmbeddedCluster {
  readonly #version: KubectlVersion;

  constructor(version: KubectlVersion, init: EmbeddedClusterInit = {}) {
    super(init);
    this.#version = version;
  }

  /** Serves, with controllers. */
  static async startFor(version: KubectlVersion, init: EmbeddedClusterInit = {}): Promise<KubectlCluster> {
    const cluster = new KubectlCluster(version, init);
    await cluster.serve();
    return cluster;
  }

  /** @param args of kubectl; `input` is its standard input */
  kubectl(args: readonly string[], { input = "" } = {}): Promise<KubectlAnswer> {
    return new Promise((resolve) => {
      const options = {
        env: { ...process.env, KUBECONFIG: this.kubeconfig, HOME: this.folder.path },
        maxBuffer: 1 << 24,
      };
      const child = execFile(kubectlPath(this.#version), [...args], options, (error, stdout, stderr) => {
        resolve({ code: typeof error?.code === "number" ? error.code : error === null ? 0 : 1, stdout, stderr });
      });
      child.stdin?.end(input);
    });
  }

  /** kubectl's standard output. @throws what it said on standard error when it fails */
  async run(...args: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await this.kubectl(args);
    if (code !== 0) throw new Error(`kubectl ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  async apply(manifest: object): Promise<string> {
    const { code, stdout, stderr } = await this.kubectl(["apply", "-f", "-"], { input: JSON.stringify(manifest) });
    if (code !== 0) throw new Error(stderr);
    return stdout;
  }
}
