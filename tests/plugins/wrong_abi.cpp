// What a plugin built for an older trainrun answers.
extern "C" const char* trainrun_plugin_abi() { return "trainrun 0.0.1, LibTorch 2.0.0"; }
extern "C" void trainrun_plugin_register(void*) {}
