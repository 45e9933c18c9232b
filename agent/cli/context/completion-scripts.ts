/**
 * The completion scripts of the shells. Each passes the words up to the cursor to edgectl, which prints one candidate a
 * line, `:files` for a file, and a tab with the candidate's description for shells that show it.
 */

/** For bash 4 and later. */
const BASH = `# bash completion for edgectl
_edgectl() {
    local IFS=$'\\n'
    COMPREPLY=($("\${COMP_WORDS[0]}" __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [ "\${COMPREPLY[0]}" = ":files" ]; then
        compopt -o default
        COMPREPLY=()
    fi
}
complete -F _edgectl edgectl
`;

/** Autoloaded as _edgectl from a folder of fpath, or sourced after compinit. */
const ZSH = `#compdef edgectl
# zsh completion for edgectl
_edgectl() {
    local tab=$'\\t' line
    local -a candidates
    while IFS= read -r line; do
        # _describe takes WORD:TEXT; a colon in the word is escaped.
        case $line in
            *$tab*) candidates+=("\${\${line%%$tab*}//:/\\\\:}:\${line#*$tab}") ;;
            *) candidates+=("\${line//:/\\\\:}") ;;
        esac
    done < <("\${(Q)words[1]}" __complete-described "\${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if [[ \${candidates[1]-} == '\\:files' ]]; then
        compset -P '--*='
        _files
    elif (( \${#candidates} )); then
        _describe -V edgectl candidates
    fi
}
if [[ \${funcstack[1]-} == _edgectl ]]; then
    _edgectl "$@"
else
    compdef _edgectl edgectl
fi
`;

/** For fish 3 and later. */
const FISH = `# fish completion for edgectl
function __edgectl_candidates
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l candidates ($words[1] __complete-described $words[2..-1] "$current" 2>/dev/null)
    if test "$candidates[1]" = ":files"
        __fish_complete_path (string replace -r '^--[^=]*=' '' -- "$current")
    else if test (count $candidates) -gt 0
        printf '%s\\n' $candidates
    end
end
complete -c edgectl -f -a '(__edgectl_candidates)'
`;

/** The name of the file in which each shell looks for it. */
export const SCRIPT_NAMES = { bash: "edgectl", zsh: "_edgectl", fish: "edgectl.fish" } as const;

export const SHELLS: ReadonlyMap<string, string> = new Map([
  ["bash", BASH],
  ["zsh", ZSH],
  ["fish", FISH],
]);
