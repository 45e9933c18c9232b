import { round } from "./measure/process-usage.ts";

/** The compared figures of a process at rest. */
const COMPARED = ["anonMiB", "rssMiB", "cpuPercent"] as const;

type Figures = Partial<Record<(typeof COMPARED)[number], number>>;
type ByPods = Readonly<Record<string, Figures | undefined>>;

interface Document {
  readonly agent?: { readonly withHub?: ByPods };
  readonly kubelet?: { readonly withHub?: ByPods };
  readonly floors?: { readonly bareTls?: Figures };
}

export interface Ratios {
  /** The agent with a hub, by what a kubelet that has joined that hub takes with as many pods. */
  readonly ofKubelet: Readonly<Record<string, Figures>>;
  /** The same by a bare Node with one TLS connection, whose CPU time is next to none. */
  readonly ofBareTls: Readonly<Record<string, Figures>>;
}

/** Divides figures of one run, so that the machine's speed is in both of them. */
export function ratiosOf(document: Document): Ratios {
  const ofKubelet: Record<string, Figures> = {};
  const ofBareTls: Record<string, Figures> = {};
  for (const [pods, figures] of Object.entries(document.agent?.withHub ?? {})) {
    const { anonMiB, rssMiB } = document.floors?.bareTls ?? {};
    ofKubelet[pods] = ratioOf(figures, document.kubelet?.withHub?.[pods]);
    ofBareTls[pods] = ratioOf(figures, { ...(anonMiB && { anonMiB }), ...(rssMiB && { rssMiB }) });
  }
  return { ofKubelet, ofBareTls };
}

function ratioOf(figures: Figures = {}, by: Figures = {}): Figures {
  const ratios: Figures = {};
  for (const name of COMPARED) {
    const [above, below] = [figures[name], by[name]];
    if (above !== undefined && below) ratios[name] = round(above / below);
  }
  return ratios;
}
