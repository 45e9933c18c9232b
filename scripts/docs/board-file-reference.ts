/** docs/picolet-yaml.md. Pure. */
import type { FieldDescription } from "@picolet/protocol/local-api/field-description.ts";
import { fieldTable } from "./configuration-reference.ts";

const INTRODUCTION = `# picolet.yaml

<!-- Made by \`npm run docs\` of firmware/first-boot/plan/board-file-fields.ts and firmware/first-boot/picolet.yaml: do not edit. -->

A board that runs picolet's image is set up by one file, \`picolet.yaml\` on the card's first partition, which any
computer reads. The board reads it at each start. An unchanged file costs nothing; another one is applied whole, and a
wrong one not at all: the board goes on with what it had, and every problem is on the serial console, on the screen and
in \`picolet-report.txt\` beside the file, with its line.

- Byte order mark and line ends of Windows are taken; indent with spaces. At most 256 KiB.
- \`picolet.yaml.txt\` is read when there is no \`picolet.yaml\`, and the report names it.
- The **token** is wiped from the file once the board has joined. Passwords of Wi-Fi and registries stay in it, readable
  to anyone who has the card.
- **Many boards, one file**: \`node.nameRule\` makes each board's name of its serial number or MAC address, and
  \`picolet-hub token create --uses 50 --ttl 168h\` a token for as many boards until its deadline.
- **Fields of the agent** that something else has set stay. What an earlier file set and this one does not say goes.
- **Factory reset**: \`edgectl factory-reset\` restarts the board and empties the data partition, with pods, images and
  the board's identity. A file \`picolet-factory-reset\` beside \`picolet.yaml\` does the same at the next start, without
  an agent. \`picolet.yaml\` stays; it needs a new token.
- **Console and SSH** take \`edgectl\`'s commands and nothing else: \`ssh picolet@board edgectl status -o json\`. Only keys
  log in over SSH. The serial console and the screen ask for nothing, as no password exists; \`console.login: false\`
  closes them. A login only reads (\`status\`, \`why\`, \`logs\`, \`get\` ...) unless \`console.access\` or \`ssh.access\`
  says more: \`operate\` also restarts and deletes pods, pulls images and holds updates; \`admin\` runs all commands,
  with \`exec\`, \`apply\`, \`join\` and \`update install\`, and is as good as root. A refused command says how to allow
  it.

## A full example

`;

interface BoardFileReferenceInit {
  readonly fields: readonly FieldDescription[];
  /** YAML. */
  readonly example: string;
}

export const boardFileReference = ({ fields, example }: BoardFileReferenceInit): string =>
  `${INTRODUCTION}\`\`\`yaml\n${example.trim()}\n\`\`\`\n\n## Fields\n\n${fieldTable(fields)}\n`;
