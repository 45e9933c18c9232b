/** How long the pages take in a real browser, from the request to what a user reads. */
import { AgentNode } from "../../support/agent/agent-process.ts";
import { Browser } from "../../support/page/browser.ts";
import { FLEET_TOKEN, FleetPages } from "../../support/page/fleet-pages.ts";
import { PAGE_CONFIG, pagePort } from "../../support/page/paged-node.ts";

const BOARDS = 10_000;
const RUNS = 3;

export interface PageFigures {
  /** The first contentful paint of a board's page; the agent has loaded nothing of it before the first run. */
  readonly firstPaintMs: readonly number[];
  /** From the token to the list of 10,000 boards. */
  readonly fleetPageMsAt10000: readonly number[];
}

export async function pageFigures(): Promise<PageFigures> {
  await using node = new AgentNode({ config: PAGE_CONFIG });
  await node.start();
  await using pages = await FleetPages.start(BOARDS);
  await using browser = await Browser.start();
  const { page } = browser;
  await browser.show("desk", "light");
  const firstPaintMs: number[] = [];
  const fleetPageMsAt10000: number[] = [];
  for (let run = 0; run < RUNS; run += 1) {
    await page.goto(`http://127.0.0.1:${pagePort(node)}/page/`);
    await page.getByText("There are no pods.").waitFor();
    const paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
    firstPaintMs.push(await page.evaluate<number>(paint));
    await page.goto(pages.url);
    await page.getByLabel("Token").fill(FLEET_TOKEN);
    const begun = performance.now();
    await page.keyboard.press("Enter");
    await page.getByText(`${BOARDS} boards`, { exact: true }).waitFor();
    fleetPageMsAt10000.push(performance.now() - begun);
  }
  return { firstPaintMs, fleetPageMsAt10000 };
}
