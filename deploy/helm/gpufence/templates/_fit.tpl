{{- /* Fits a manifest of files/, which is the Kustomize base as well, to the values: in comes
       (dict "item" MANIFEST "root" $ "resources" RESOURCES); out comes YAML. It must not
       know which manifest it is: what only one of them needs is in that one's template. */ -}}
{{- define "gpufence.fit" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $resources := .resources -}}
{{- $item := .item -}}
{{- if hasKey $item.metadata "namespace" -}}
{{- $_ := set $item.metadata "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- range $item.subjects -}}
{{- $_ := set . "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- $labels := dict "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "app.kubernetes.io/instance" $root.Release.Name -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version) -}}
{{- $_ := set $item.metadata "labels" (merge $labels ($item.metadata.labels | default dict)) -}}
{{- if eq $item.kind "DaemonSet" -}}
{{- $tag := $values.image.tag | default $root.Chart.AppVersion -}}
{{- $template := $item.spec.template -}}
{{- $spec := $template.spec -}}
{{- range concat ($spec.initContainers | default list) $spec.containers -}}
{{- $_ := set . "image" (printf "%s:%s" $values.image.repository $tag) -}}
{{- $_ := set . "imagePullPolicy" $values.image.pullPolicy -}}
{{- end -}}
{{- range $spec.containers -}}
{{- $_ := set . "resources" $resources -}}
{{- end -}}
{{- $rolling := dict "maxUnavailable" $values.maxUnavailable -}}
{{- $_ := set $item.spec "updateStrategy" (dict "type" "RollingUpdate" "rollingUpdate" $rolling) -}}
{{- $_ := set $spec "nodeSelector" $values.nodeSelector -}}
{{- $_ := set $spec "tolerations" $values.tolerations -}}
{{- $_ := set $spec "priorityClassName" $values.priorityClassName -}}
{{- with $values.imagePullSecrets -}}
{{- $_ := set $spec "imagePullSecrets" . -}}
{{- end -}}
{{- with $values.podAnnotations -}}
{{- $_ := set $template.metadata "annotations" . -}}
{{- end -}}
{{- end -}}
{{- toYaml $item -}}
{{- end -}}
