import type { PodChangeAnswer } from "./status.ts";

/** Says what has become of a pod, for people. @param pod its name as it is shown. @param isDone false: it is under way */
export function podChangeSentence(change: PodChangeAnswer["change"], pod: string, isDone: boolean): string {
  switch (change) {
    case "restarted":
      return `pod/${pod} ${isDone ? "restarted" : "is restarting"}`;
    case "removed":
      return `pod "${pod}" ${isDone ? "deleted" : "is being deleted"}`;
    case "ended":
      return `pod "${pod}" ${isDone ? "ended" : "is ending"} on this board; its hub decides what follows`;
  }
}
