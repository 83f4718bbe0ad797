/* Search without a server: a page opened from disk may not start a worker, so its script runs in a
   hidden frame of the page. Named as what the offline plugin would otherwise load from the network. */
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.postMessage = (data) => setTimeout(answer, 0, data);
      inside.importScripts = (...urls) => Promise.all(urls.map((one) => load(inside, one)));
      this.inside = inside;
      this.ready = load(inside, new URL(url, document.baseURI));
    }

    postMessage(data) {
      const message = new this.inside.MessageEvent("message", { data });
      this.ready.then(() => this.inside.dispatchEvent(message));
    }
  };
}

function load(inside, url) {
  return new Promise((resolve, reject) => {
    const script = inside.document.createElement("script");
    Object.assign(script, { src: url, onload: resolve, onerror: reject });
    inside.document.body.append(script);
  });
}
