import type { KubeClient, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { METRICS_GROUP, METRICS_VERSION } from "@picolet/hub-core/usage-objects.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";

const API_SERVICES: ResourceType = {
  group: "apiregistration.k8s.io",
  version: "v1",
  plural: "apiservices",
  kind: "APIService",
  namespaced: false,
};
const REF = { namespace: "", name: `${METRICS_VERSION}.${METRICS_GROUP}` };
/** The APIService may be made later, or be made again. */
const INTERVAL = seconds(300);

export interface ApiServiceCaComponents {
  readonly client: Pick<KubeClient, "get" | "patch">;
  /** PEM of the CA that has issued the certificate of the metrics port. */
  readonly ca: Watch<string>;
  readonly clock: Clock;
  readonly log: Log;
}

/** The Service of the metrics port in the cluster (hub/deploy/metrics-service.yaml). */
export const METRICS_SERVICE = "picolet-hub-metrics";

/**
 * Keeps the hub's CA in the APIService of `metrics.k8s.io`, where that names the hub's Service. Without the right to read
 * it (hub/deploy/metrics-api) there is nothing to do.
 */
export class ApiServiceCa implements Component {
  readonly name = "CA of the metrics API";
  readonly #components: ApiServiceCaComponents;

  constructor(components: ApiServiceCaComponents) {
    this.#components = components;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#components;
    let problem = "";
    while (!signal.aborted) {
      let next = "";
      try {
        await this.#keep(signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        const isAbsent = isPicoletError(error, "permission_denied") || isPicoletError(error, "not_found");
        next = isAbsent ? "" : describeError(error);
      }
      if (next !== "" && next !== problem) log.warn("cannot keep the CA in the APIService", { error: next });
      problem = next;
      await clock.sleep(INTERVAL, signal);
    }
  }

  async #keep(signal: AbortSignal): Promise<void> {
    const { client, ca, log } = this.#components;
    const { spec } = await client.get(API_SERVICES, REF, signal);
    const { service, caBundle } = (spec ?? {}) as {
      readonly service?: { readonly name?: string };
      readonly caBundle?: string;
    };
    const wanted = Buffer.from(ca.current).toString("base64");
    if (service?.name !== METRICS_SERVICE || caBundle === wanted) return;
    await client.patch(API_SERVICES, REF, "merge", { spec: { caBundle: wanted } }, {}, signal);
    log.info("the APIService of metrics.k8s.io has the hub's CA", {});
  }
}
