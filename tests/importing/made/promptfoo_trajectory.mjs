// What promptfoo itself says of made trajectories: node promptfoo_trajectory.mjs DIST GIVEN
import { readdirSync, readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const dist = process.argv[2];
const handlers = {
  "trajectory:tool-used": "handleTrajectoryToolUsed",
  "trajectory:tool-sequence": "handleTrajectoryToolSequence",
  "trajectory:tool-args-match": "handleTrajectoryToolArgsMatch",
  "trajectory:step-count": "handleTrajectoryStepCount",
};
const file = readdirSync(dist).find(
  (name) => name.startsWith("evaluator-") && name.endsWith(".js") && readFileSync(join(dist, name), "utf8").includes("const handleTrajectoryToolUsed"),
);
const url = pathToFileURL(join(dist, file)).href;
// promptfoo exports no function that judges a given trace: its own handlers are exported as they are loaded.
registerHooks({
  load(which, context, next) {
    const loaded = next(which, context);
    if (which !== url) return loaded;
    return { ...loaded, source: `${loaded.source}\nexport { ${Object.values(handlers).join(", ")} };\n` };
  },
});
const promptfoo = await import(url);
const { assertions, trajectories } = JSON.parse(readFileSync(process.argv[3], "utf8"));
const traces = trajectories.map((calls) => ({
  traceId: "t",
  spans: calls.map((call, at) => ({
    spanId: String(at),
    name: `execute_tool ${at}`,
    startTime: at,
    endTime: at + 1,
    attributes: { "gen_ai.tool.name": call.name, "tool.arguments": JSON.stringify(call.arguments) },
  })),
}));
const said = assertions.map((assertion) => {
  const type = assertion.type.replace(/^not-/, "");
  const inverse = type !== assertion.type;
  return traces.map((trace) => {
    try {
      const params = { assertion, renderedValue: assertion.value, inverse, baseType: type };
      return promptfoo[handlers[type]]({ ...params, assertionValueContext: { trace } }).pass ? "1" : "0";
    } catch (error) {
      return "-";
    }
  }).join("");
});
process.stdout.write(JSON.stringify(said), () => process.exit(0));
