// The site's search runs in a worker, which browsers do not start for a page that is a file. There, a Worker is a hidden frame that runs the same
// script: messages go back and forth as they do with a worker, and importScripts, which cannot wait here, returns a promise.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const whole = new URL(url, document.baseURI);
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();  // a document of its own: some browsers replace the first, empty one after a while
      inside.document.write("<!doctype html><title>worker</title>");
      inside.document.close();
      const run = (source) => new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = new URL(source, whole).href;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${script.src}`));
        inside.document.head.append(script);
      });
      inside.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => run(source)), Promise.resolve());
      inside.postMessage = (data) => this.receive(data);
      this.inside = inside;
      this.started = run(whole);
      this.started.catch((error) => {
        console.error(error);
        this.dispatchEvent(new ErrorEvent("error", { error, message: error.message }));
      });
    }

    postMessage(data) {
      this.started.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })), () => {});
    }

    receive(data) {
      const event = new MessageEvent("message", { data });
      Promise.resolve().then(() => {
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
