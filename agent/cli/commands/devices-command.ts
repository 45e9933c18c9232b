import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { DeviceList, DeviceReport } from "@picolet/protocol/local-api/status.ts";
import { type Context, table } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY } from "../context/exit-codes.ts";
import { machineFormat, printObject } from "../context/objects.ts";

/** @returns degraded when a device that a container has is unhealthy */
export async function runDevices(context: Context, input: Arguments): Promise<number> {
  const answer = await context.client.get<DeviceList>("/v1/devices");
  const format = machineFormat(input);
  if (format !== undefined) await context.terminal.write(printObject(answer, format));
  else if (answer.items.length === 0) context.terminal.writeError("No devices found\n");
  else {
    const rows = answer.items.map(({ resource, device, source, healthy, usedBy }) => [
      ...[resource, device, source, healthy ? "Healthy" : "Unhealthy", usedText(usedBy)],
    ]);
    await context.terminal.write(
      table(context, input, { headers: ["RESOURCE", "DEVICE", "SOURCE", "HEALTH", "USED BY"], rows, nameColumns: 2 }),
    );
  }
  return answer.items.some(({ healthy, usedBy }) => !healthy && usedBy !== null) ? EXIT_DEGRADED : EXIT_HEALTHY;
}

const usedText = (usedBy: DeviceReport["usedBy"]): string =>
  usedBy === null ? "" : `${usedBy.namespace}/${usedBy.pod}/${usedBy.container}`;
