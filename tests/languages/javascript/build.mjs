// build.mjs WIT OUTPUT: makes the component. The settings are the toolchain's own: nothing of JavaScript is left out.
import { componentize } from '@bytecodealliance/componentize-js';
import { writeFile } from 'node:fs/promises';

const [witPath, output] = process.argv.slice(2);
const { component } = await componentize({ sourcePath: 'announce.js', witPath, worldName: 'chained-command' });
await writeFile(output, component);
