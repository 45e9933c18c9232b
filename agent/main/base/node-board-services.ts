/** The agent's services for components (`wit/board`), each loaded with its first call. */
import { join } from "node:path";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { Tags } from "@picolet/protocol/telemetry/records.ts";
import type { BoardServices } from "@picolet/runtime-contract/board-services.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { parseBuckets } from "@picolet/runtime-wasm/shared/board/keyvalue/grant.ts";
import { ANNOTATION_PREFIX } from "@picolet/runtime-wasm/shared/grants/annotation-prefix.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { KeyvalueBuckets } from "../../core/store/keyvalue-buckets.ts";
import { nodeReference } from "../../core/store/store-ports.ts";
import type { NodeCondition } from "../../node/node-conditions.ts";
import type { CorrectedClock } from "../../security/corrected-clock.ts";
import type { KeyvalueService, NamedBucket } from "../../store/keyvalue/keyvalue-service.ts";
import type { Store } from "../../store/store.ts";
import type { NodeTelemetry } from "../node/node-telemetry.ts";
import type { HubLink } from "./hub-link.ts";

export interface BoardServicesComponents {
  readonly clock: CorrectedClock;
  readonly log: Log;
  readonly store: Store;
  readonly link: HubLink | undefined;
  readonly telemetry: NodeTelemetry;
  /** Asked when a component asks. */
  readonly conditions: () => Watch<readonly NodeCondition[]>;
}

export interface BoardServicesInit {
  readonly configuration: Configuration;
  readonly rootDir: string;
}

const KEYVALUE_ANNOTATION = `${ANNOTATION_PREFIX}keyvalue`;

export class NodeBoardServices implements Component {
  readonly name = "services of components";
  readonly services: BoardServices;
  readonly #components: BoardServicesComponents;
  readonly #init: BoardServicesInit;
  #keyvalue: Promise<KeyvalueService> | undefined;
  #stretch = 1;

  constructor(components: BoardServicesComponents, init: BoardServicesInit) {
    this.#components = components;
    this.#init = init;
    this.services = {
      keyvalue: () => this.#keyvalueService(),
      "node-info": () => this.#makeNodeInfo(),
      telemetry: () => components.telemetry.service((uid) => this.#labelsOf(uid)),
    };
  }

  run(signal: AbortSignal): Promise<void> {
    return aborted(signal);
  }

  /** Writes wait `factor` times as long for others that go to the disk with them. */
  async stretch(factor: number): Promise<void> {
    this.#stretch = factor;
    (await this.#keyvalue)?.stretch(factor);
  }

  async shed(): Promise<void> {
    (await this.#keyvalue)?.shed();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    (await this.#keyvalue)?.[Symbol.dispose]();
  }

  /** The components' key-value buckets, for users of `edgectl`. */
  async keyvalueBuckets(): Promise<KeyvalueBuckets> {
    return (await this.#keyvalueService()).administration();
  }

  #keyvalueService(): Promise<KeyvalueService> {
    this.#keyvalue ??= this.#makeKeyvalue();
    return this.#keyvalue;
  }

  async #makeKeyvalue(): Promise<KeyvalueService> {
    const { clock, log, store } = this.#components;
    const { KeyvalueService } = await import("../../store/keyvalue/keyvalue-service.ts");
    const regarding = nodeReference(this.#init.configuration.nodeName);
    const onDamage = (reason: string, setAside: string): void => {
      log.error("the key-value store of components was damaged: an empty one was created", { reason, setAside });
      const message = `${reason}; the damaged file is now ${setAside}; components find their buckets empty`;
      store.events.record({ regarding, type: "Warning", reason: "KeyvalueStoreRebuilt", message });
    };
    const namedBy = (namespace: string, bucket: string): readonly NamedBucket[] =>
      [...store.desired.desired.current.pods.values()].flatMap((pod) => namedIn(pod, namespace, bucket));
    const made = new KeyvalueService(
      { clock, log, onDamage, namedBy, isClockSet: () => this.#isClockSet },
      { path: join(this.#init.rootDir, "wasm", "keyvalue.db") },
    );
    made.stretch(this.#stretch);
    return made;
  }

  async #makeNodeInfo() {
    const { link, conditions } = this.#components;
    const { nodeName, nodeLabels, wasm } = this.#init.configuration;
    const { NodeInfoService } = await import("../../node/node-info-service.ts");
    return new NodeInfoService(
      {
        conditions: () => conditions().current,
        labels: () => ({ ...nodeLabels, ...apiLabels(link) }),
        isClockSet: () => this.#isClockSet,
        hub: () => {
          if (link === undefined) return "standalone";
          return link.report().state === "connected" ? "connected" : "disconnected";
        },
      },
      { nodeName, shownLabels: wasm.nodeLabels },
    );
  }

  #labelsOf(uid: string): Tags {
    const pods = [...this.#components.store.desired.desired.current.pods.values()];
    return Object.entries(pods.find((each) => (each.pod.metadata.uid ?? each.uid) === uid)?.pod.metadata.labels ?? {});
  }

  /** A board without a battery starts in 1970: the clock stays at its floor until a time source sets it. */
  get #isClockSet(): boolean {
    const { clock } = this.#components;
    return clock.isConfirmed || clock.wall().getTime() > clock.floorMs;
  }
}

function apiLabels(link: HubLink | undefined): Readonly<Record<string, string>> {
  const metadata = link?.node.current?.metadata as { readonly labels?: Readonly<Record<string, string>> } | undefined;
  return metadata?.labels ?? {};
}

function namedIn({ pod: { metadata } }: DesiredPod, namespace: string, bucket: string): readonly NamedBucket[] {
  const text = metadata.namespace === namespace ? metadata.annotations?.[KEYVALUE_ANNOTATION] : undefined;
  const grant = text === undefined ? undefined : parseBuckets(text).value.find(({ name }) => name === bucket);
  return grant === undefined ? [] : [{ pod: metadata.name, grant }];
}
