// Reads scalars (JSON list on standard input) with js-yaml's core schema; prints what it makes of them.
// Usage: node yaml_scalars.mjs < scalars.json, beside a node_modules that has js-yaml 5.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import { join } from 'node:path'

const require = createRequire(join(process.cwd(), 'x.js'))
const yaml = await import(pathToFileURL(require.resolve('js-yaml')).href)
const { load, CORE_SCHEMA } = yaml.default ?? yaml
const { version } = JSON.parse(readFileSync(join(process.cwd(), 'node_modules/js-yaml/package.json')))

const said = JSON.parse(readFileSync(0)).map((text) => {
  try {
    const value = load(`k: ${text}\n`, { schema: CORE_SCHEMA }).k
    const kind = value === null ? 'null' : typeof value
    return [kind, kind === 'null' ? '' : String(value)]
  } catch {
    return ['error', '']
  }
})
console.log(JSON.stringify({ version, said }))
