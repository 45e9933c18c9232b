/** docs/hub-configuration.md. Pure. */
import { EXAMPLE, type HubField } from "@picolet/hub/main/configuration-file.ts";
import type { Flag } from "@picolet/protocol/command-line/program.ts";
import { code, prose, table } from "./markdown.ts";

const INTRODUCTION = `# Configuration of the hub

<!-- Made by \`npm run docs\` of the table of flags of picolet-hub: do not edit. -->

\`picolet-hub\` reads \`/etc/picolet-hub/config.yaml\` where it is there, or the file that \`--config\` names: YAML or JSON
with a field for each flag of \`picolet-hub serve\`. A flag of the command line wins over the file. Other commands take
from it what they have flags for, such as \`embedded\` and \`dataDir\`. An unknown field, or a value that its flag would
refuse, is refused: the hub prints every problem with its line, exits with 78 and starts nothing.

\`\`\`yaml
${EXAMPLE}\`\`\`

\`serverName\` matters as soon as boards or kubectl reach the hub by another name or address than the machine's own:
behind a router, a balancer, or by DNS. Their TLS refuses a hub whose certificate has another name. A hub that listens
on all interfaces without such a name logs a warning. \`picolet-hub kubeconfig --server NAME\` prints a kubeconfig for
other machines, after it has compared the name with the certificate.

- A **duration** is written as Go writes it: \`20s\`, \`1m30s\`, \`4h\`.
- A **size** is a Kubernetes quantity of bytes: \`64Mi\`, \`1Gi\`, \`1048576\`.
- A field whose type is a **list** takes one value as well.
`;

const TYPES: Readonly<Record<string, string>> = {
  DURATION: "duration",
  SIZE: "size",
  FILE: "path",
  DIR: "path",
};

function typeOf({ value, choices, repeats }: Flag): string {
  if (value === undefined) return "true or false";
  const one = choices?.map((each) => `\`${each}\``).join(", ") ?? TYPES[value] ?? value;
  return repeats === true ? `list of ${one}` : one;
}

export const hubConfigurationReference = (fields: readonly HubField[]): string =>
  `${INTRODUCTION}\n${table(
    ["field", "type", "default", "meaning", "flag"],
    fields.map(({ name, flag }) => [
      code(name),
      prose(typeOf(flag)),
      code(flag.default ?? (flag.value === undefined ? "false" : "")),
      prose(flag.help),
      code(`--${flag.name}`),
    ]),
  )}\n`;
