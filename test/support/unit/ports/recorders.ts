/** An event recorder and a log that remember their calls. */
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
