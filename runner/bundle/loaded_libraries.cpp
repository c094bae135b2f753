#include "runner/bundle/loaded_libraries.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// What the dynamic section of a loaded file says.
struct LoadedFile {
  std::string path;  // "" for the program
  std::string name;  // its SONAME, or that of its file
  std::vector<std::string> needed;
  std::vector<std::string> versions;  // of symbols in other libraries: "GLIBC_2.34"
};

/// The loader adds the address at which a file lies to some entries, and not to others.
ElfW(Addr) absolute(ElfW(Addr) base, ElfW(Addr) value) { return value < base ? base + value : value; }

template <class T>
const T* at_address(ElfW(Addr) address) {
  return reinterpret_cast<const T*>(address);  // NOLINT(performance-no-int-to-ptr): it comes from the loader
}

void read_versions(ElfW(Addr) address, size_t count, const char* texts, std::vector<std::string>& versions) {
  for (size_t i = 0; i < count; ++i) {
    const auto* file = at_address<ElfW(Verneed)>(address);
    ElfW(Addr) entry = address + file->vn_aux;
    for (size_t k = 0; k < file->vn_cnt; ++k) {
      const auto* version = at_address<ElfW(Vernaux)>(entry);
      versions.emplace_back(texts + version->vna_name);
      entry += version->vna_next;
    }
    address += file->vn_next;
  }
}

LoadedFile read_loaded(const dl_phdr_info& info) {
  LoadedFile file;
  file.path = info.dlpi_name ? info.dlpi_name : "";
  file.name = fs::path(file.path).filename().string();
  const ElfW(Dyn)* dynamic = nullptr;
  for (size_t i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info.dlpi_phdr[i];
    if (header.p_type == PT_DYNAMIC) dynamic = at_address<ElfW(Dyn)>(info.dlpi_addr + header.p_vaddr);
  }
  if (!dynamic) return file;
  const char* texts = nullptr;
  ElfW(Addr) versions = 0;
  size_t num_versions = 0;
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) texts = at_address<char>(absolute(info.dlpi_addr, entry->d_un.d_ptr));
    if (entry->d_tag == DT_VERNEED) versions = absolute(info.dlpi_addr, entry->d_un.d_ptr);
    if (entry->d_tag == DT_VERNEEDNUM) num_versions = entry->d_un.d_val;
  }
  if (!texts) return file;
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED) file.needed.emplace_back(texts + entry->d_un.d_val);
    if (entry->d_tag == DT_SONAME) file.name = texts + entry->d_un.d_val;
  }
  if (versions != 0) read_versions(versions, num_versions, texts, file.versions);
  return file;
}

std::vector<LoadedFile> loaded_files() {
  std::vector<LoadedFile> files;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        static_cast<std::vector<LoadedFile>*>(to)->push_back(read_loaded(*info));
        return 0;
      },
      &files);
  return files;
}

/// Those that every Linux with glibc has, in the release that its own loader needs.
bool is_of_glibc(const std::string& name) {
  static constexpr std::array kNames = {"ld-linux",      "libc.so.",       "libm.so.",   "libmvec.so.",
                                        "libdl.so.",     "libpthread.so.", "librt.so.",  "libanl.so.",
                                        "libresolv.so.", "libutil.so.",    "libnsl.so.1"};
  return std::ranges::any_of(kNames, [&](const char* begin) { return name.starts_with(begin); });
}

std::vector<int> numbers_in(const std::string& version) {
  std::vector<int> numbers;
  std::istringstream text(version);
  for (std::string number; std::getline(text, number, '.');)
    numbers.push_back(static_cast<int>(std::strtol(number.c_str(), nullptr, 10)));
  return numbers;
}

}  // namespace

NeededLibraries needed_libraries(const std::vector<std::string>& opened) {
  const std::vector<LoadedFile> files = loaded_files();
  std::map<std::string, const LoadedFile*> by_name;
  std::vector<const LoadedFile*> waiting;
  std::map<const LoadedFile*, std::string> found;
  for (const LoadedFile& file : files) {
    by_name.emplace(file.name, &file);
    by_name.emplace(fs::path(file.path).filename().string(), &file);
    std::error_code gone;
    const bool is_opened = std::ranges::any_of(
        opened, [&](const std::string& path) { return !file.path.empty() && fs::equivalent(file.path, path, gone); });
    if (file.path.empty() || is_opened) waiting.push_back(&file);
    if (is_opened) found.emplace(&file, fs::path(file.path).filename().string());
  }
  NeededLibraries needed;
  std::vector<int> newest;
  for (size_t i = 0; i < waiting.size(); ++i) {
    for (const std::string& version : waiting[i]->versions) {
      if (!version.starts_with("GLIBC_2")) continue;
      const std::vector<int> numbers = numbers_in(version.substr(6));
      if (numbers > newest) {
        newest = numbers;
        needed.glibc = version.substr(6);
      }
    }
    for (const std::string& name : waiting[i]->needed) {
      if (is_of_glibc(name)) continue;
      const auto library = by_name.find(name);
      if (library == by_name.end()) throw Error("the shared library " + name + " is needed, and is not loaded");
      if (found.emplace(library->second, name).second) waiting.push_back(library->second);
    }
  }
  for (const LoadedFile* file : waiting) {
    if (found.contains(file)) needed.libraries.push_back({found.at(file), file->path});
  }
  return needed;
}

}  // namespace trainrun
