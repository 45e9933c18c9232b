/** The boot check itself, in sh(1), on a board of files: fakes of rauc, dpkg and systemctl change these. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";

const SCRIPT = fileURLToPath(new URL("boot-check", import.meta.url));
/** From util-linux. */
const SETSID = "/usr/bin/setsid";
const DEADLINE_S = 60;
/** Boots of one trial; more would be a board that restarts for ever. */
const MAX_BOOTS = 12;

/**
 * Each fake counts its calls. The one in `cut` is the last of its boot: the power is lost before or after it took
 * effect. `$w` is the board's folder.
 */
const PROGRAM = (body: string): string => `#!/bin/sh
w=$BOARD
n=$(($(cat $w/calls) + 1)); echo $n >$w/calls
lose() { [ -e $w/cut ] && [ "$(cat $w/cut)" = "$n $1" ] && /bin/rm $w/cut && kill -9 0; }
lose before
effect() {
${body}
}
effect "$@"; code=$?
lose after
exit $code
`;

const PROGRAMS: Readonly<Record<string, string>> = {
  // GRUB: the first of the order that is good and has a try left; a slot that is marked good needs none.
  rauc: `case "$*" in
    "status --output-format=shell") i=1; for slot in A B; do
      echo "RAUC_SLOT_BOOTNAME_$i='$slot'"; echo "RAUC_SLOT_BOOT_STATUS_$i='$(cat $w/status-$slot)'"; i=$((i + 1)); done ;;
    "status mark-good") echo good >$w/status-$(cat $w/booted); echo 99 >$w/tries-$(cat $w/booted) ;;
    "status mark-bad booted") echo bad >$w/status-$(cat $w/booted) ;;
    "status mark-bad other") echo bad >$w/status-$(tr AB BA <$w/booted) ;;
    "status mark-active booted") cat $w/booted >$w/primary; echo good >$w/status-$(cat $w/booted) ;;
    "status mark-active other") other=$(tr AB BA <$w/booted); echo $other >$w/primary; echo good >$w/status-$other
      [ "$(cat $w/tries-$other)" = 99 ] || echo 3 >$w/tries-$other ;;
    *) return 1 ;;
  esac`,
  systemctl: `case "$1" in
    is-failed) [ -e $w/agent-failed ] ;;
    is-active) true ;;
    reboot) echo yes >$w/reboot ;;
    *) true ;;
  esac`,
  "dpkg-query": 'printf "installed %s" "$(cat $w/installed)"',
  dpkg: `case "$*" in
    *--install*) for file; do :; done; [ "$(cat $file)" = broken ] && { echo half >$w/installed; return 1; }
      cat $file >$w/installed ;;
  esac`,
  // Time passes, and the agent says what it has to say.
  sleep: `echo $(($(cut -d. -f1 $w/uptime) + $1)).00 >$w/uptime
  . $w/agent`,
  sync: "true",
  mv: '/bin/mv "$@"',
};

class Board implements Disposable {
  readonly #folder = new TempFolder();
  readonly path = this.#folder.at("board");
  readonly #state = this.#folder.at("state");
  boots = 0;

  constructor() {
    const bin = this.#folder.at("bin");
    for (const folder of [this.path, this.#state, bin]) mkdirSync(folder);
    for (const [name, body] of Object.entries(PROGRAMS)) {
      writeFileSync(join(bin, name), PROGRAM(body));
      chmodSync(join(bin, name), 0o755);
    }
    const files = { booted: "A", primary: "A", "status-A": "good", "status-B": "bad", "tries-A": "99", "tries-B": "0" };
    for (const [name, text] of Object.entries({ ...files, installed: "1.0", calls: "0" }))
      this.write(name, `${text}\n`);
    this.write("agent", "");
  }

  /** As on picolet's image; RAUC is not to be asked. */
  useImage(): void {
    const bin = this.#folder.at("bin");
    const slots = "case $1 in get-state) cat $BOARD/status-$2 ;; set-state) echo $3 >$BOARD/status-$2 ;; esac";
    writeFileSync(join(bin, "boot-slots"), `#!/bin/sh\n${slots}\n`, { mode: 0o755 });
    writeFileSync(join(bin, "rauc"), "#!/bin/sh\necho asked >$BOARD/rauc\nexit 1\n");
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.path, name), text);
  }

  read(name: string): string {
    return readFileSync(join(this.path, name), "utf8").trim();
  }

  put(name: string, text: string): void {
    writeFileSync(join(this.#state, name), text);
  }

  /** Undefined: there is none. */
  state(name: string): string | undefined {
    const path = join(this.#state, name);
    return existsSync(path) ? readFileSync(path, "utf8").trim() : undefined;
  }

  trial(fields: Readonly<Record<string, string>>): void {
    const all = { id: "t1", deadline: String(DEADLINE_S), ...fields };
    this.put(
      "trial",
      Object.entries(all)
        .map(([name, value]) => `${name}=${value}\n`)
        .join(""),
    );
  }

  /** Runs whenever time passes, in sh(1). */
  agent(script: string): void {
    this.write("agent", script);
  }

  readonly sayHealthy = `printf 'id=t1\\n' >${this.#state}/healthy`;

  /** Boots again and again until the check ends by itself; the board's own start is no boot. */
  runToTheEnd(): void {
    for (;;) {
      this.boots += 1;
      assert.ok(this.boots <= MAX_BOOTS, "the board restarts for ever");
      const { signal, stderr } = this.#run();
      if (signal === null && !existsSync(join(this.path, "reboot"))) return;
      assert.ok(signal === null || signal === "SIGKILL", stderr);
      this.#boot();
    }
  }

  #run(): { readonly signal: string | null; readonly stderr: string } {
    const bin = this.#folder.at("bin");
    this.write("cmdline", `quiet rauc.slot=${this.read("booted")} ro\n`);
    this.write("uptime", "5.00\n");
    const env = {
      PATH: `${bin}:/usr/bin:/bin`,
      BOARD: this.path,
      PICOLET_UPDATES: this.#state,
      PICOLET_CMDLINE: join(this.path, "cmdline"),
      PICOLET_UPTIME: join(this.path, "uptime"),
      PICOLET_POLL: "20",
      PICOLET_SLOTS: join(bin, "boot-slots"),
    };
    // A group of its own, which is killed as a whole.
    const { signal, stderr, status } = spawnSync(SETSID, ["--wait", "sh", SCRIPT], { env, encoding: "utf8" });
    return { signal: status === 137 ? "SIGKILL" : signal, stderr };
  }

  #boot(): void {
    rmSync(join(this.path, "reboot"), { force: true });
    const primary = this.read("primary");
    const order = primary === "A" ? ["A", "B"] : ["B", "A"];
    const bootable = order.filter((slot) => {
      const tries = Number(this.read(`tries-${slot}`));
      if (this.read(`status-${slot}`) !== "good" || tries === 0 || this.#isBroken(slot)) return false;
      if (tries < 99) this.write(`tries-${slot}`, String(tries - 1));
      return true;
    });
    assert.ok(bootable[0] !== undefined, "no slot boots");
    this.write("booted", `${bootable[0]}\n`);
  }

  /** GRUB tries it as often as it may, and then marks it. */
  #isBroken(slot: string): boolean {
    if (!existsSync(join(this.path, `broken-${slot}`))) return false;
    this.write(`status-${slot}`, "bad\n");
    return true;
  }

  get outcome(): string {
    return /^outcome=(.*)$/m.exec(this.state("result") ?? "")?.[1] ?? "none";
  }

  get reason(): string {
    return /^reason=(.*)$/m.exec(this.state("result") ?? "")?.[1] ?? "";
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

interface Scenario {
  readonly name: string;
  readonly prepare: (board: Board) => void;
  readonly outcome: "good" | "rolledBack";
  readonly reason?: RegExp;
  /** Checks what runs in the end. */
  readonly holds: (board: Board) => void;
}

const withSystem = (board: Board): void => board.trial({ kind: "os", slot: "B" });
const withPackage = (board: Board): void => {
  board.trial({ kind: "agent", version: "2.0" });
  board.put("next.deb", "2.0\n");
  board.put("previous.deb", "1.0\n");
};
const withConfiguration = (board: Board): void => {
  board.trial({ kind: "configuration", path: join(board.path, "config.yaml") });
  board.write("config.yaml", "old\n");
  board.put("next.yaml", "new\n");
  board.put("previous.yaml", "old\n");
};
const runs = (slot: string) => (board: Board) => {
  assert.equal(board.read("booted"), slot);
  assert.equal(board.read("primary"), slot, "also after the next start");
  assert.equal(board.read(`status-${slot}`), "good");
  assert.equal(board.read(`tries-${slot}`), "99");
};
const isInstalled = (version: string) => (board: Board) => assert.equal(board.read("installed"), version);
const isConfigured = (text: string) => (board: Board) => assert.equal(board.read("config.yaml"), text);

const SCENARIOS: readonly Scenario[] = [
  {
    name: "a system that becomes healthy",
    prepare: (board) => {
      withSystem(board);
      board.agent(`[ "$(cat $w/booted)" = B ] && ${board.sayHealthy}; true`);
    },
    outcome: "good",
    holds: runs("B"),
  },
  {
    name: "a system whose agent never comes up",
    prepare: withSystem,
    outcome: "rolledBack",
    reason: /^the agent did not come up within 60 s$/,
    holds: runs("A"),
  },
  {
    name: "a system that does not boot",
    prepare: (board) => {
      withSystem(board);
      board.write("broken-B", "");
    },
    outcome: "rolledBack",
    reason: /^the new system did not boot$/,
    holds: runs("A"),
  },
  {
    name: "a package that becomes healthy",
    prepare: (board) => {
      withPackage(board);
      board.agent(`[ "$(cat $w/installed)" = 2.0 ] && ${board.sayHealthy}; true`);
    },
    outcome: "good",
    holds: (board) => {
      isInstalled("2.0")(board);
      assert.equal(board.state("current.deb"), "2.0", "the next update goes back to it");
    },
  },
  {
    name: "a package whose agent never comes up",
    prepare: withPackage,
    outcome: "rolledBack",
    reason: /^the agent did not come up/,
    holds: isInstalled("1.0"),
  },
  {
    name: "a package that dpkg cannot install",
    prepare: (board) => {
      withPackage(board);
      board.put("next.deb", "broken\n");
    },
    outcome: "rolledBack",
    reason: /^dpkg could not install it/,
    holds: isInstalled("1.0"),
  },
  {
    name: "a configuration that becomes healthy",
    prepare: (board) => {
      withConfiguration(board);
      board.agent(`[ "$(cat $w/config.yaml)" = new ] && ${board.sayHealthy}; true`);
    },
    outcome: "good",
    holds: isConfigured("new"),
  },
  {
    name: "a configuration with which the hub is lost",
    prepare: (board) => {
      withConfiguration(board);
      board.put("unhealthy", "id=t1\nreason=no connection to the hub\n");
    },
    outcome: "rolledBack",
    reason: /^not healthy after 60 s: no connection to the hub$/,
    holds: isConfigured("old"),
  },
];

for (const { name, prepare, outcome, reason, holds } of SCENARIOS) {
  test(`${name}: ${outcome}`, () => {
    using board = new Board();
    prepare(board);
    board.runToTheEnd();
    assert.equal(board.outcome, outcome, board.reason);
    if (reason !== undefined) assert.match(board.reason, reason);
    holds(board);
  });
}

/** Cuts of each scenario, others with each run: all of them take minutes of a processor. */
const CUTS = Number(process.env.PICOLET_POWER_CUTS ?? 2);

for (const { name, prepare, outcome, holds } of SCENARIOS) {
  test(`${name}: ${outcome} also when the power is lost at any step`, () => {
    let calls: number;
    {
      using whole = new Board();
      prepare(whole);
      whole.runToTheEnd();
      calls = Number(whole.read("calls"));
    }
    const step = Math.max(1, Math.floor(calls / CUTS));
    for (let cut = 1 + (process.pid % step); cut <= calls; cut += step)
      for (const when of ["before", "after"]) {
        using board = new Board();
        prepare(board);
        board.write("cut", `${cut} ${when}\n`);
        board.runToTheEnd();
        assert.equal(board.outcome, outcome, `${when} call ${cut} of ${calls}: ${board.reason}`);
        holds(board);
      }
  });
}

test("an agent that has failed for good is not waited for", () => {
  using board = new Board();
  withConfiguration(board);
  board.write("agent-failed", "");
  board.runToTheEnd();
  assert.equal(board.outcome, "rolledBack");
  assert.match(board.reason, /^the agent did not start/);
  assert.ok(Number(board.read("uptime")) < DEADLINE_S);
});

test("a board that loses power again and again during a trial goes back", () => {
  using board = new Board();
  withPackage(board);
  board.put("starts", "4\n");
  board.agent(board.sayHealthy);
  board.runToTheEnd();
  assert.equal(board.outcome, "rolledBack");
  assert.match(board.reason, /restarted 5 times/);
  isInstalled("1.0")(board);
});

test("a trial whose end is written down is not judged again", () => {
  using board = new Board();
  withPackage(board);
  board.put("result", "id=t1\noutcome=good\nreason=\n");
  board.runToTheEnd();
  assert.equal(board.read("installed"), "1.0");
});

test("without a trial nothing happens to a slot that is good; one that was activated by hand is marked good", () => {
  using board = new Board();
  board.runToTheEnd();
  assert.equal(board.read("tries-A"), "99");
  board.write("status-A", "bad\n");
  board.runToTheEnd();
  assert.equal(board.read("status-A"), "good");
});

test("on picolet's image a slot is marked good without RAUC's service, which would stay in memory", () => {
  using board = new Board();
  board.useImage();
  board.write("status-A", "bad\n");
  board.runToTheEnd();
  assert.equal(board.read("status-A"), "good");
  assert.equal(existsSync(join(board.path, "rauc")), false);
});
