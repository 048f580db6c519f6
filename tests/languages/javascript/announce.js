// announce: a chained plugin in JavaScript. It makes the container announce its address when its link comes up, and adds the
// routes of `announce.routes`.

import { getEnvironment } from 'wasi:cli/environment@0.2.6';
import { getStdin } from 'wasi:cli/stdin@0.2.6';
import { getStdout } from 'wasi:cli/stdout@0.2.6';
import { own } from 'postern:cni/link@0.1.1';
import { setArpNotify } from 'postern:cni/link-sysctl@0.1.1';
import { Route, add as addRoutes, list as listRoutes } from 'postern:cni/routes@0.1.1';

function read() {
  const input = getStdin();
  const pieces = [];
  try {
    for (;;) pieces.push(input.blockingRead(65536n));
  } catch {
    // The stream reports the end of the input as an error.
  }
  return pieces.map((piece) => new TextDecoder().decode(piece)).join('');
}

function print(object) {
  const bytes = new TextEncoder().encode(JSON.stringify(object));
  // One write carries 4096 bytes at most.
  const output = getStdout();
  for (let at = 0; at < bytes.length; at += 4096) output.blockingWriteAndFlush(bytes.subarray(at, at + 4096));
}

function link() {
  const found = own();
  if (!found) throw new Error('there is no link to announce');
  return found;
}

const verbs = {
  ADD(config) {
    if (!config.prevResult) throw new Error('prevResult is missing: this plugin must follow another plugin');
    const mine = link();
    setArpNotify(mine, true);
    const wanted = config.announce?.routes ?? [];
    const routes = wanted.map(({ dst, gw }) => {
      const route = new Route(dst);
      if (gw) route.setGateway(gw);
      return route;
    });
    addRoutes(mine, routes);
    return { ...config.prevResult, routes: [...(config.prevResult.routes ?? []), ...wanted] };
  },
  CHECK(config) {
    const there = listRoutes(link()).map((route) => route.destination());
    const missing = (config.announce?.routes ?? []).find(({ dst }) => !there.includes(dst));
    if (missing) throw new Error(`the route to ${missing.dst} is gone`);
  },
  VERSION() {
    return { cniVersion: '1.1.0', supportedVersions: ['1.0.0', '1.1.0'] };
  },
  // The kernel removes the routes with the link.
  DEL() {},
  GC() {},
  STATUS() {},
};

export const run = {
  run() {
    let config = {};
    let failed = false;
    try {
      config = JSON.parse(read());
      const result = verbs[Object.fromEntries(getEnvironment()).CNI_COMMAND](config);
      if (result) print(result);
    } catch (error) {
      // A refusal of the host has a message.
      const reason = error.payload?.message ?? String(error);
      print({ cniVersion: config.cniVersion ?? '1.0.0', code: 100, msg: `announce: ${reason}` });
      failed = true;
    }
    // The thrown error needs no message, because the error object is printed.
    if (failed) throw { payload: undefined };
  },
};
