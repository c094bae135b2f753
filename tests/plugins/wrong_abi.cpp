// What a plugin built for an older trainrun says.
__attribute__((section(".trainrun_plugin"), used)) static const char trainrun_plugin_tag[] =
    "trainrun 0.0.1, LibTorch 2.0.0";
extern "C" void trainrun_plugin_register(void*) {}
