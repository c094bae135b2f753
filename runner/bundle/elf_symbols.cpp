#include "runner/bundle/elf_symbols.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace trainrun {
namespace {

/// A table's entry; nothing where the file ends before.
template <class T>
bool read_at(const char* file, size_t bytes, uint64_t offset, T& entry) {
  if (offset > bytes || sizeof entry > bytes - offset) return false;
  std::memcpy(&entry, file + offset, sizeof entry);
  return true;
}

bool is_for_debuggers(const Elf64_Shdr& section, std::string_view name) {
  if ((section.sh_flags & SHF_ALLOC) != 0 || section.sh_type == SHT_NOBITS) return false;
  return section.sh_type == SHT_SYMTAB || name == ".strtab" || name.starts_with(".debug_") ||
         name.starts_with(".zdebug_");
}

}  // namespace

void clear_symbols(char* file, size_t bytes) {
  Elf64_Ehdr header{};
  if (!read_at(file, bytes, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) {
    return;
  }
  Elf64_Shdr names{};
  if (!read_at(file, bytes, header.e_shoff + uint64_t{header.e_shstrndx} * sizeof names, names)) return;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section{};
    if (!read_at(file, bytes, header.e_shoff + i * sizeof section, section)) return;
    const uint64_t name = names.sh_offset + section.sh_name;
    if (name >= bytes || section.sh_offset > bytes || section.sh_size > bytes - section.sh_offset) continue;
    const std::string_view text(file + name, strnlen(file + name, bytes - name));
    if (is_for_debuggers(section, text)) std::memset(file + section.sh_offset, 0, section.sh_size);
  }
}

}  // namespace trainrun
