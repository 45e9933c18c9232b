/** An event recorder and a log that remember their calls. */
import type { CountedTime, NodeCounts } from "@picolet/agent/core/node/node-counts.ts";
import type { EventInput, EventRecorder } from "@picolet/agent/core/store/store-ports.ts";
import type { Log, LogFields } from "@picolet/protocol/ports.ts";

export class RecordedEvents implements EventRecorder {
  readonly all: EventInput[] = [];

  record(event: EventInput): void {
    this.all.push(event);
  }

  /** `Normal Pulled spec.containers{app}: message`, in order. */
  get lines(): string[] {
    return this.all.map(
      ({ type, reason, regarding, message }) =>
        `${type} ${reason}${regarding.fieldPath === "" ? "" : ` ${regarding.fieldPath}`}: ${message}`,
    );
  }
}

export class RecordedLog implements Log {
  readonly entries: { readonly level: string; readonly message: string; readonly fields: LogFields }[] = [];

  debug(message: string, fields: LogFields = {}): void {
    this.entries.push({ level: "debug", message, fields });
  }

  info(message: string, fields: LogFields = {}): void {
    this.entries.push({ level: "info", message, fields });
  }

  warn(message: string, fields: LogFields = {}): void {
    this.entries.push({ level: "warn", message, fields });
  }

  error(message: string, fields: LogFields = {}): void {
    this.entries.push({ level: "error", message, fields });
  }

  child(): Log {
    return this;
  }

  /** Messages of warnings and errors. */
  get problems(): string[] {
    return this.entries.filter(({ level }) => level === "warn" || level === "error").map(({ message }) => message);
  }
}

/** How often a duration was observed, by its labels joined by spaces. */
export function countedTimes(counts: NodeCounts, name: CountedTime): Readonly<Record<string, number>> {
  const sums = [...counts.times(name)].map(({ labels, value }) => {
    return [labels.join(" "), value.counts.reduce((sum, count) => sum + count, 0)] as const;
  });
  return Object.fromEntries(sums);
}
