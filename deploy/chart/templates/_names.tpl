{{- /* Names and labels. */}}

{{- define "tandem.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tandem.render.name" -}}{{ include "tandem.fullname" . }}-render{{- end -}}

{{- /* The name of a pool's objects: the argument is {root, pool}. */}}
{{- define "tandem.gen.name" -}}
{{- $base := printf "%s-gen" (include "tandem.fullname" .root) -}}
{{- ternary $base (printf "%s-%s" $base .pool) (eq .pool "main") -}}
{{- end -}}

{{- define "tandem.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tandem.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tandem.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: tandem
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tandem.render.selector" -}}
app.kubernetes.io/name: tandem
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: render-svc
{{- end -}}

{{- /* The labels that select every pod of gen-svc. */}}
{{- define "tandem.gen.tier" -}}
app.kubernetes.io/name: tandem
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gen-svc
{{- end -}}

{{- /* The labels that select the pods of one pool: the argument is {root, pool}. */}}
{{- define "tandem.gen.selector" -}}
{{ include "tandem.gen.tier" .root }}
tandem/pool: {{ .pool }}
{{- end -}}

{{- /* The image of a tier: the argument is {root, tier, name, suffix}. */}}
{{- define "tandem.image" -}}
{{- $image := .tier.image -}}
{{- $name := default (printf "%s/%s" .root.Values.image.registry .name | trimPrefix "/") $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- $tag := default (printf "%s%s" (default .root.Chart.AppVersion .root.Values.image.tag) .suffix) $image.tag -}}
{{- printf "%s:%s" $name $tag -}}
{{- end -}}
{{- end -}}

{{- /* The DNS names of a Service, as a JSON list: the argument is {root, name}. */}}
{{- define "tandem.dnsNames" -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $short := printf "%s.%s" .name $namespace -}}
{{- list .name $short (printf "%s.svc" $short) (printf "%s.svc.%s" $short .root.Values.clusterDomain) | toJson -}}
{{- end -}}
