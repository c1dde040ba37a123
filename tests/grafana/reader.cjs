// Grafana's own code over panels: reads {panel, frames}... from standard input as JSON, writes what becomes of each.
// Its library expects a browser; jsdom is one. Run with NODE_PATH set to where both are installed.
const { JSDOM } = require("jsdom");
const { window } = new JSDOM("", { url: "http://localhost/" });
window.matchMedia = () => ({ matches: false, addListener() {}, addEventListener() {} });
for (const name of ["document", "localStorage", "navigator", "HTMLElement", "Element", "Node", "DOMParser"]) {
  Object.defineProperty(globalThis, name, { value: window[name], configurable: true });
}
globalThis.window = window;
globalThis.matchMedia = window.matchMedia;

const data = require("@grafana/data");
const { firstValueFrom } = require("rxjs");

const transformers = new Map(Object.values(data.standardTransformers).map((each) => [each.id, each]));
data.standardTransformersRegistry.setInit(() =>
  [...transformers.values()].map((each) => ({ id: each.id, name: each.name, transformation: each })),
);
const units = new Set(data.getValueFormats().flatMap((group) => group.submenu.map((each) => each.value)));

async function read({ panel, frames, values }) {
  const defaults = panel.fieldConfig.defaults;
  const unknown = (panel.transformations ?? []).map((each) => each.id).filter((id) => !transformers.has(id));
  if (!units.has(defaults.unit) && !defaults.unit.startsWith("suffix:")) unknown.push(defaults.unit);
  const given = frames.map((frame) => data.toDataFrame(frame));
  const made = await firstValueFrom(data.transformDataFrame(unknown.length ? [] : panel.transformations ?? [], given));
  const field = { type: data.FieldType.number, config: defaults, values };
  const shown = data.getDisplayProcessor({ field, theme: data.createTheme() });
  return {
    unknown,
    frames: made.map((frame) =>
      frame.fields.map((each) => ({
        name: data.getFieldDisplayName(each, frame, made),
        type: each.type,
        values: Array.from(each.values, (value) => (Number.isNaN(value) ? null : value)),
      })),
    ),
    texts: values.map((value) => data.formattedValueToString(shown(value))),
  };
}

Promise.all(JSON.parse(require("fs").readFileSync(0, "utf8")).map(read)).then((all) =>
  process.stdout.write("\n" + JSON.stringify(all)),
);
